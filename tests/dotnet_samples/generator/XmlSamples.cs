// XmlSerializer as XmlMessageFormatter calls it, DataContractSerializer as text, and documents in other encodings.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.Serialization;
using System.Text;
using System.Xml;
using System.Xml.Serialization;
using Shop;

namespace Postroad.Samples
{
    static class XmlSamples
    {
        public static void All()
        {
            foreach (var value in Values())
                Samples.Try("xmlserializer/" + value.Key, () => Serialized(value.Value));
            foreach (var value in Contracts())
                Samples.Try("datacontract/" + value.Key, () => Contract(value.Value));
            Encodings();
            FromStringWriter();
            Oddities();
        }

        static Dictionary<string, object> Values()
        {
            return new Dictionary<string, object>
            {
                { "string", "hello" },
                { "string-empty", "" },
                { "string-unicode", "Grüße, 世界, Ελλάδα, \U0001F600" },
                { "string-markup", "a < b && c > \"d\" 'e' ]]>" },
                { "string-lines", "one\r\ntwo\tthree\nfour" },
                { "string-spaces", "  kept  " },
                { "string-long", string.Concat(Enumerable.Range(0, 400).Select(number => "line " + number + "; ")) },
                { "int", 42 },
                { "int-least", int.MinValue },
                { "long", long.MaxValue },
                { "unsigned-long", ulong.MaxValue },
                { "byte", (byte)7 },
                { "double", 0.1 },
                { "double-nan", double.NaN },
                { "double-endless", double.NegativeInfinity },
                { "decimal", 79228162514264337593543950335m },
                { "decimal-zeros", 1.500m },
                { "boolean", true },
                { "char", 'A' },
                { "datetime-utc", new DateTime(2026, 11, 19, 15, 30, 0, 123, DateTimeKind.Utc) },
                { "datetime-unspecified", new DateTime(1999, 12, 31, 23, 59, 59) },
                { "guid", new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff") },
                { "bytes", new byte[] { 0, 1, 2, 3, 250, 251, 252 } },
                { "bytes-empty", new byte[0] },
                { "enum", State.Shipped },
                { "enum-flags", Rights.Read | Rights.Write },
                { "array-int", new[] { 1, 2, 3 } },
                { "array-string-with-null", new[] { "a", null, "", "d" } },
                { "array-jagged", new[] { new[] { 1 }, new int[0], new[] { 2, 3 } } },
                { "array-object", new object[] { 1, "two", 3.5, true, null, new DateTime(2026, 1, 1), (byte)9 } },
                { "array-empty", new string[0] },
                { "list-nullable", new List<int?> { 1, null, 3 } },
                { "order", Order.Example() },
                { "order-empty", new Order() },
                { "orders", new List<Order> { Order.Example(), new Order { Id = 2, Customer = "B & C <Ltd>" } } },
                { "attributes-and-namespaces", new Invoice() },
                { "choice", new Choice() },
                { "derived-types", new Drawing() },
                { "every-type", new EveryXsd() },
                { "struct", new Money { Amount = 1.10m, Currency = "€" } },
            };
        }

        static Sample Serialized(object value)
        {
            var output = new MemoryStream();
            new XmlSerializer(value.GetType()).Serialize(output, value);
            return Document(output.ToArray(), "XmlSerializer");
        }

        static Dictionary<string, object> Contracts()
        {
            return new Dictionary<string, object>
            {
                { "order", Order.Example() },
                { "string", "hello & goodbye" },
                { "int", 5 },
                { "list", new List<string> { "a", "b" } },
                { "dictionary", new Dictionary<string, int> { { "one", 1 }, { "two", 2 } } },
                { "timespan", new TimeSpan(1, 2, 3, 4) },
                { "objects", new object[] { 1, "two", 3.0m, new Guid("00000000-0000-0000-0000-000000000001") } },
            };
        }

        static Sample Contract(object value)
        {
            var output = new MemoryStream();
            new DataContractSerializer(value.GetType()).WriteObject(output, value);
            return Document(output.ToArray(), "DataContractSerializer");
        }

        static void Encodings()
        {
            var encodings = new Dictionary<string, Encoding>
            {
                { "utf-8", new UTF8Encoding(false) }, { "utf-8-bom", new UTF8Encoding(true) }, { "utf-16-bom", Encoding.Unicode },
                { "utf-16", new UnicodeEncoding(false, false) }, { "utf-16-be-bom", Encoding.BigEndianUnicode },
                { "latin-1", Encoding.GetEncoding("iso-8859-1") }, { "ascii", Encoding.ASCII },
            };
            foreach (var encoding in encodings)
                Samples.Try("xml-encoding/" + encoding.Key, () =>
                {
                    var output = new MemoryStream();
                    var settings = new XmlWriterSettings { Encoding = encoding.Value, Indent = true, NewLineChars = "\r\n" };
                    using (var writer = XmlWriter.Create(output, settings))
                        new XmlSerializer(typeof(string)).Serialize(writer, "Grüße aus Köln");
                    return Document(output.ToArray(), "XmlSerializer by XmlWriter in " + encoding.Key);
                });
        }

        /// <summary>What comes from a StringWriter says that it is UTF-16, whatever encoding it is sent in.</summary>
        static void FromStringWriter()
        {
            foreach (var encoding in new Dictionary<string, Encoding> { { "utf-8", new UTF8Encoding(false) }, { "utf-16", new UnicodeEncoding(false, false) } })
                Samples.Try("xml-encoding/declared-utf-16-in-" + encoding.Key, () =>
                {
                    var text = new StringWriter();
                    new XmlSerializer(typeof(Order)).Serialize(text, Order.Example());
                    var sample = Document(Encoding.Unicode.GetPreamble().Concat(Encoding.Unicode.GetBytes(text.ToString())).ToArray(), "XmlSerializer by StringWriter");
                    sample.Body = encoding.Value.GetBytes(text.ToString());
                    return sample;
                });
        }

        static void Oddities()
        {
            var documents = new Dictionary<string, Action<XmlWriter>>
            {
                { "cdata", writer => { writer.WriteStartElement("note"); writer.WriteCData("a < b & c"); writer.WriteEndElement(); } },
                { "comment-and-instruction", writer =>
                    {
                        writer.WriteComment(" before ");
                        writer.WriteProcessingInstruction("shop", "version=\"2\"");
                        writer.WriteElementString("note", "text");
                        writer.WriteComment(" after ");
                    }
                },
                { "prefixes", writer =>
                    {
                        writer.WriteStartElement("p", "root", "urn:one");
                        writer.WriteAttributeString("q", "attribute", "urn:two", "value");
                        writer.WriteElementString("child", "urn:three", "three");
                        writer.WriteElementString("p", "child", "urn:one", "one");
                        writer.WriteElementString("plain", "", "none");
                        writer.WriteEndElement();
                    }
                },
                { "mixed-content", writer => writer.WriteRaw("<p>one <b>two</b> three <i/> four</p>") },
                { "space-preserved", writer => writer.WriteRaw("<p xml:space=\"preserve\">  <b> two </b>  </p>") },
                { "character-references", writer => writer.WriteRaw("<p a=\"&#9;&#10;\">&#65;&#x20AC;&#x1F600;&amp;&lt;</p>") },
                { "deep", writer => writer.WriteRaw(string.Concat(Enumerable.Repeat("<a>", 50)) + "bottom" + string.Concat(Enumerable.Repeat("</a>", 50))) },
                { "empty-root", writer => writer.WriteElementString("empty", "") },
            };
            foreach (var document in documents)
                Samples.Try("xml/" + document.Key, () =>
                {
                    var output = new MemoryStream();
                    using (var writer = XmlWriter.Create(output, new XmlWriterSettings { Encoding = new UTF8Encoding(false) }))
                        document.Value(writer);
                    return Document(output.ToArray(), "XmlWriter");
                });
            Samples.Try("xml/doctype", () => // .NET's reader refuses it unless told otherwise
            {
                const string text = "<!DOCTYPE order [<!ENTITY tea \"Earl Grey\">]><order>&tea;</order>";
                return new Sample { Writer = "XmlWriter", Body = Encoding.UTF8.GetBytes(text), Kind = "text", Text = text };
            });
        }

        public static Sample Document(byte[] body, string writer)
        {
            string xml;
            using (var reader = XmlReader.Create(new MemoryStream(body)))
                xml = BinaryXml.Text(reader);
            return new Sample { Writer = writer, Body = body, Kind = "xml", Xml = xml, Contains = BinaryXml.LeavesOf(xml) };
        }
    }
}
