// What a reader of a body must see: the values of an object, of an XML document, of a JSON document, each as text.
// A text is cut at the characters that JSON or XML may escape, and is left out where its form is the reader's choice.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Data;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.Serialization;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Xml;

namespace Postroad.Samples
{
    sealed class Leaves
    {
        const int Longest = 80;
        static readonly char[] Escaped = Enumerable.Range(0, 0xA0).Where(code => code < ' ' || code >= 0x7F)
            .Select(code => (char)code).Concat("\"'\\&<>\u2028\u2029").ToArray();

        readonly List<string> texts = new List<string>();
        readonly HashSet<object> seen = new HashSet<object>(new SameObject());

        public static IEnumerable<string> OfObject(object value)
        {
            var leaves = new Leaves();
            leaves.Walk(value);
            return leaves.texts;
        }

        public static IEnumerable<string> OfText(string text)
        {
            var leaves = new Leaves();
            leaves.Pieces(text);
            return leaves.texts;
        }

        public static IEnumerable<string> OfXml(XmlReader reader)
        {
            var leaves = new Leaves();
            while (reader.Read())
            {
                if (reader.NodeType == XmlNodeType.Element)
                {
                    leaves.texts.Add(reader.LocalName);
                    while (reader.MoveToNextAttribute())
                    {
                        leaves.texts.Add(reader.LocalName);
                        leaves.Pieces(reader.Value);
                    }
                }
                else if (reader.NodeType == XmlNodeType.Text || reader.NodeType == XmlNodeType.CDATA)
                    leaves.Pieces(reader.Value);
            }
            return leaves.texts;
        }

        public static IEnumerable<string> OfJson(byte[] utf8)
        {
            var leaves = new Leaves();
            using (var reader = JsonReaderWriterFactory.CreateJsonReader(utf8, XmlDictionaryReaderQuotas.Max))
                while (reader.Read())
                {
                    if (reader.NodeType == XmlNodeType.Element && reader.LocalName != "root" && reader.LocalName != "item")
                        leaves.Pieces(reader.GetAttribute("item") ?? reader.LocalName);
                    else if (reader.NodeType == XmlNodeType.Text)
                        leaves.Pieces(reader.Value);
                }
            return leaves.texts;
        }

        void Pieces(string text)
        {
            foreach (var piece in text.Split(Escaped))
            {
                var trimmed = piece.Trim();
                if (trimmed.Length == 0)
                    continue;
                var end = Math.Min(Longest, trimmed.Length);
                if (end < trimmed.Length && char.IsHighSurrogate(trimmed[end - 1]))
                    end--;
                texts.Add(trimmed.Substring(0, end));
            }
        }

        void Walk(object value)
        {
            switch (value)
            {
                case null:
                case byte[] _ when value.GetType() == typeof(byte[]): // not sbyte[], which the runtime takes for one
                case DBNull _:
                case BitArray _:
                    return;
                case string text:
                    Pieces(text);
                    return;
                case bool truth:
                    texts.Add(truth ? "true" : "false");
                    return;
                case char unit:
                    Pieces(unit.ToString());
                    return;
                case double number: // old runtimes write more digits than the number needs
                    var whole = number.ToString("R", CultureInfo.InvariantCulture).Replace('E', 'e');
                    texts.Add(whole.Contains("e") ? whole : whole.Substring(0, Math.Min(whole.Length, 16)));
                    return;
                case float number: // the digits that every way to write it shares
                    var digits = number.ToString("R", CultureInfo.InvariantCulture).Split('E')[0];
                    texts.Add(digits.Substring(0, Math.Min(digits.Length, 7)));
                    return;
                case DateTime moment:
                    Moment(moment);
                    return;
                case DateTimeOffset moment:
                    Moment(moment.DateTime);
                    return;
                case TimeSpan span:
                    texts.Add(span.Duration().ToString(@"hh\:mm\:ss", CultureInfo.InvariantCulture));
                    return;
                case Enum member:
                    texts.Add(Convert.ToDecimal(member, CultureInfo.InvariantCulture).ToString(CultureInfo.InvariantCulture));
                    return;
                case Guid _:
                case IConvertible _:
                    texts.Add(Convert.ToString(value, CultureInfo.InvariantCulture));
                    return;
            }
            if (value.GetType().IsValueType || seen.Add(value))
                Inside(value);
        }

        void Moment(DateTime moment)
        {
            texts.Add(moment.ToString("yyyy-MM-dd", CultureInfo.InvariantCulture));
            texts.Add(moment.ToString("HH:mm:ss.FFFFFF", CultureInfo.InvariantCulture));
        }

        void Inside(object value)
        {
            var type = value.GetType();
            switch (value)
            {
                case Array items:
                    foreach (var item in items)
                        Walk(item);
                    return;
                case DataSet set:
                    texts.Add(set.DataSetName);
                    if (set.RemotingFormat == SerializationFormat.Binary) // its tables are streams inside arrays of bytes
                        return;
                    foreach (DataTable table in set.Tables)
                        Walk(table);
                    return;
                case DataTable table:
                    texts.Add(table.TableName);
                    foreach (DataColumn column in table.Columns)
                        texts.Add(column.ColumnName);
                    foreach (DataRow row in table.Rows)
                        foreach (var cell in row.ItemArray)
                            if (!(cell is DateTime) && !(cell is byte[])) // their form in XML is the writer's
                                Walk(cell);
                    return;
                case IDictionary entries:
                    foreach (DictionaryEntry entry in entries)
                    {
                        Walk(entry.Key);
                        Walk(entry.Value);
                    }
                    return;
                case Exception fault:
                    var kept = new SerializationInfo(type, new FormatterConverter());
                    fault.GetObjectData(kept, new StreamingContext(StreamingContextStates.All));
                    foreach (SerializationEntry entry in kept)
                        Walk(entry.Value);
                    return;
                case StringBuilder built:
                    Pieces(built.ToString());
                    return;
                case Uri address:
                    Pieces(address.OriginalString);
                    return;
                case Version version:
                    foreach (var part in version.ToString().Split('.'))
                        texts.Add(part);
                    return;
                case Delegate call:
                    texts.Add(call.Method.Name);
                    Walk(call.Target);
                    return;
                case MemoryStream _:
                    return;
                case ISerializable own when type.Namespace == "Shop":
                    texts.Add(type.Name);
                    var written = new SerializationInfo(type, new FormatterConverter());
                    own.GetObjectData(written, new StreamingContext());
                    foreach (SerializationEntry entry in written)
                    {
                        Pieces(entry.Name);
                        Walk(entry.Value);
                    }
                    return;
                case IEnumerable items when type.Namespace != "Shop":
                    foreach (var item in items)
                        Walk(item);
                    return;
            }
            if (type.Namespace != "Shop") // Tuple, ValueTuple, KeyValuePair and the like
            {
                foreach (var field in type.GetFields().Where(each => !each.IsStatic))
                    Walk(field.GetValue(value));
                foreach (var property in type.GetProperties().Where(each => each.GetIndexParameters().Length == 0))
                    if (property.DeclaringType.Namespace.StartsWith("System") && property.Name != "Rest" && property.Name != "Length")
                        Walk(property.GetValue(value));
                return;
            }
            texts.Add(type.Name.Split('`')[0]);
            for (var level = type; level != null && level.Namespace == "Shop"; level = level.BaseType)
                foreach (var field in level.GetFields(BindingFlags.Instance | BindingFlags.Public | BindingFlags.NonPublic | BindingFlags.DeclaredOnly))
                    if (!field.IsNotSerialized)
                    {
                        Pieces(field.Name.Replace(">k__BackingField", ""));
                        Walk(field.GetValue(value));
                    }
        }

        sealed class SameObject : IEqualityComparer<object>
        {
            bool IEqualityComparer<object>.Equals(object one, object other)
            {
                return ReferenceEquals(one, other);
            }

            int IEqualityComparer<object>.GetHashCode(object value)
            {
                return RuntimeHelpers.GetHashCode(value);
            }
        }
    }
}
