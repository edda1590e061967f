// JSON for requests, and from answers: objects are dictionaries, lists are lists, whole numbers are long.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections.Generic;
    using System.Globalization;
    using System.Text;

    /// <summary>Writes one JSON object. Members with a null value are left out.</summary>
    sealed class JsonWriter
    {
        readonly StringBuilder text = new StringBuilder(256).Append('{');

        public JsonWriter Add(string name, string value)
        {
            if (value != null)
                Quote(Name(name), value);
            return this;
        }

        public JsonWriter Add(string name, long value)
        {
            Name(name).Append(value.ToString(CultureInfo.InvariantCulture));
            return this;
        }

        public JsonWriter Add(string name, bool value)
        {
            Name(name).Append(value ? "true" : "false");
            return this;
        }

        /// <summary>Bytes in base64, which needs no escapes.</summary>
        public JsonWriter Add(string name, byte[] value)
        {
            if (value != null)
                Name(name).Append('"').Append(Convert.ToBase64String(value)).Append('"');
            return this;
        }

        public JsonWriter Add(string name, IEnumerable<string> values)
        {
            return List(name, values, Quote);
        }

        public JsonWriter Add(string name, IEnumerable<ulong> values)
        {
            return List(name, values, (into, value) => into.Append(value.ToString(CultureInfo.InvariantCulture)));
        }

        public JsonWriter Add(string name, JsonWriter value)
        {
            Name(name).Append(value);
            return this;
        }

        public JsonWriter Null(string name)
        {
            Name(name).Append("null");
            return this;
        }

        public byte[] ToBytes()
        {
            return Encoding.UTF8.GetBytes(ToString());
        }

        public override string ToString()
        {
            return text + "}";
        }

        JsonWriter List<T>(string name, IEnumerable<T> values, Action<StringBuilder, T> write)
        {
            Name(name).Append('[');
            var first = true;
            foreach (var value in values)
            {
                if (!first)
                    text.Append(',');
                first = false;
                write(text, value);
            }
            text.Append(']');
            return this;
        }

        StringBuilder Name(string name)
        {
            if (text.Length > 1)
                text.Append(',');
            return text.Append('"').Append(name).Append("\":");
        }

        static void Quote(StringBuilder into, string value)
        {
            into.Append('"');
            foreach (var each in value)
            {
                if (each == '"' || each == '\\')
                    into.Append('\\').Append(each);
                else if (each < ' ' || char.IsSurrogate(each)) // a lone surrogate has no UTF-8
                    into.Append("\\u").Append(((int)each).ToString("x4", CultureInfo.InvariantCulture));
                else
                    into.Append(each);
            }
            into.Append('"');
        }
    }

    /// <summary>Reads JSON of the manager. Raises FormatException for anything else.</summary>
    sealed class JsonReader
    {
        const int MaxDepth = 64;
        readonly string text;
        int at;

        JsonReader(string text)
        {
            this.text = text;
        }

        public static object Read(byte[] data)
        {
            var reader = new JsonReader(Encoding.UTF8.GetString(data));
            var value = reader.Value(0);
            if (reader.Next() != '\0')
                throw reader.Fault();
            return value;
        }

        object Value(int depth)
        {
            if (depth > MaxDepth)
                throw Fault();
            switch (Next())
            {
                case '{':
                    return Object(depth);
                case '[':
                    return List(depth);
                case '"':
                    return String();
                case 't':
                    return Word("true", true);
                case 'f':
                    return Word("false", false);
                case 'n':
                    return Word("null", null);
                default:
                    return Number();
            }
        }

        Dictionary<string, object> Object(int depth)
        {
            var members = new Dictionary<string, object>();
            at++;
            if (Next() != '}')
            {
                do
                {
                    if (Next() != '"')
                        throw Fault();
                    var name = String();
                    Expect(':');
                    members[name] = Value(depth + 1);
                }
                while (Comma());
            }
            Expect('}');
            return members;
        }

        List<object> List(int depth)
        {
            var items = new List<object>();
            at++;
            if (Next() != ']')
            {
                do
                    items.Add(Value(depth + 1));
                while (Comma());
            }
            Expect(']');
            return items;
        }

        string String()
        {
            var end = text.IndexOfAny(new[] { '"', '\\' }, ++at);
            if (end >= 0 && text[end] == '"')
            {
                var plain = text.Substring(at, end - at);
                at = end + 1;
                return plain;
            }
            var made = new StringBuilder();
            while (at < text.Length)
            {
                var each = text[at++];
                if (each == '"')
                    return made.ToString();
                if (each != '\\')
                {
                    made.Append(each);
                    continue;
                }
                if (at == text.Length)
                    break;
                each = text[at++];
                var which = "bfnrt".IndexOf(each);
                if (which >= 0)
                    made.Append("\b\f\n\r\t"[which]);
                else if (each != 'u')
                    made.Append(each);
                else if (
                    at + 4 <= text.Length
                    && ushort.TryParse(
                        text.Substring(at, 4), NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var unit))
                {
                    made.Append((char)unit);
                    at += 4;
                }
                else
                    break;
            }
            throw Fault();
        }

        object Number()
        {
            var start = at;
            while (at < text.Length && "+-.eE0123456789".IndexOf(text[at]) >= 0)
                at++;
            var digits = text.Substring(start, at - start);
            if (long.TryParse(digits, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var whole))
                return whole;
            if (ulong.TryParse(digits, NumberStyles.None, CultureInfo.InvariantCulture, out var large))
                return unchecked((long)large);
            if (double.TryParse(digits, NumberStyles.Float, CultureInfo.InvariantCulture, out var real))
                return real;
            throw Fault();
        }

        object Word(string word, object value)
        {
            if (string.CompareOrdinal(text, at, word, 0, word.Length) != 0)
                throw Fault();
            at += word.Length;
            return value;
        }

        bool Comma()
        {
            if (Next() != ',')
                return false;
            at++;
            return true;
        }

        void Expect(char wanted)
        {
            if (Next() != wanted)
                throw Fault();
            at++;
        }

        /// <summary>The next character that is no space, which stays; a null character at the end.</summary>
        char Next()
        {
            while (at < text.Length && " \t\r\n".IndexOf(text[at]) >= 0)
                at++;
            return at < text.Length ? text[at] : '\0';
        }

        FormatException Fault()
        {
            return new FormatException($"the answer is not JSON at character {at + 1}");
        }
    }
}
