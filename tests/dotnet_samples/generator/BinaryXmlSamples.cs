// Binary XML, [MC-NBFX] with the dictionaries of [MC-NBFS] and [MC-NBFSE], as XmlDictionaryWriter writes it.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.Serialization;
using System.Text;
using System.Xml;
using Shop;

namespace Postroad.Samples
{
    /// <summary>The strings that both ends know, which the program is given as a file with one string a line.</summary>
    static class StaticDictionary
    {
        public static readonly XmlDictionary Strings = new XmlDictionary();
        static readonly List<XmlDictionaryString> InOrder = new List<XmlDictionaryString>();

        public static int Count
        {
            get { return InOrder.Count; }
        }

        public static void Load(string path)
        {
            foreach (var line in File.ReadAllText(path, Encoding.UTF8).Split('\n'))
                InOrder.Add(Strings.Add(line));
        }

        public static XmlDictionaryString At(int index)
        {
            return InOrder[index];
        }

        public static XmlDictionaryString Known(string text)
        {
            XmlDictionaryString found;
            if (!Strings.TryLookup(text, out found))
                throw new KeyNotFoundException("not in the dictionary: " + text);
            return found;
        }
    }

    /// <summary>A session as the binary encoder of WCF keeps it: it collects the strings that are new in a message.</summary>
    sealed class WriterSession : XmlBinaryWriterSession
    {
        public readonly List<string> New = new List<string>();

        public override bool TryAdd(XmlDictionaryString value, out int key)
        {
            if (!base.TryAdd(value, out key))
                return false;
            New.Add(value.Value);
            return true;
        }
    }

    static class BinaryXml
    {
        public const string Soap = "http://www.w3.org/2003/05/soap-envelope";
        public const string Addressing = "http://www.w3.org/2005/08/addressing";

        public static byte[] Written(Action<XmlDictionaryWriter> content, IXmlDictionary dictionary = null, XmlBinaryWriterSession session = null)
        {
            var output = new MemoryStream();
            using (var writer = XmlDictionaryWriter.CreateBinaryWriter(output, dictionary ?? StaticDictionary.Strings, session, false))
                content(writer);
            return output.ToArray();
        }

        /// <summary>The document as text, as .NET's own reader reads it.</summary>
        public static string Text(XmlReader reader)
        {
            var text = new StringBuilder();
            var settings = new XmlWriterSettings { OmitXmlDeclaration = true, ConformanceLevel = ConformanceLevel.Fragment, CheckCharacters = false };
            using (var writer = XmlWriter.Create(text, settings))
                writer.WriteNode(reader, false);
            return text.ToString();
        }

        public static string Text(byte[] document, XmlBinaryReaderSession session = null)
        {
            using (var reader = XmlDictionaryReader.CreateBinaryReader(document, 0, document.Length, StaticDictionary.Strings, XmlDictionaryReaderQuotas.Max, session))
                return Text(reader);
        }

        public static List<string> LeavesOf(string xml)
        {
            using (var reader = XmlReader.Create(new StringReader(xml), new XmlReaderSettings { CheckCharacters = false }))
                return Leaves.OfXml(reader).ToList();
        }

        /// <summary>An envelope as the binary encoder of WCF writes it, with what `body` writes inside.</summary>
        public static Action<XmlDictionaryWriter> Envelope(string action, Action<XmlDictionaryWriter> body, Action<XmlDictionaryWriter> headers = null)
        {
            return writer =>
            {
                XmlDictionaryString soap = StaticDictionary.Known(Soap), addressing = StaticDictionary.Known(Addressing);
                writer.WriteStartElement("s", StaticDictionary.Known("Envelope"), soap);
                writer.WriteXmlnsAttribute("a", addressing);
                writer.WriteStartElement("s", StaticDictionary.Known("Header"), soap);
                writer.WriteStartElement("a", StaticDictionary.Known("Action"), addressing);
                writer.WriteAttributeString("s", StaticDictionary.Known("mustUnderstand"), soap, "1");
                writer.WriteString(action);
                writer.WriteEndElement();
                if (headers != null)
                    headers(writer);
                writer.WriteStartElement("a", StaticDictionary.Known("To"), addressing);
                writer.WriteAttributeString("s", StaticDictionary.Known("mustUnderstand"), soap, "1");
                writer.WriteString("net.msmq://shop.example/private/orders");
                writer.WriteEndElement();
                writer.WriteEndElement();
                writer.WriteStartElement("s", StaticDictionary.Known("Body"), soap);
                body(writer);
                writer.WriteEndElement();
                writer.WriteEndElement();
            };
        }
    }

    static class BinaryXmlSamples
    {
        public static void All()
        {
            foreach (var document in Documents())
                Samples.Try("binaryxml/" + document.Key, () => Framed(BinaryXml.Envelope("urn:shop/" + document.Key, writer =>
                {
                    writer.WriteStartElement("m", "urn:shop");
                    document.Value(writer);
                    writer.WriteEndElement();
                })));
            foreach (var document in Roots())
                Samples.Try("binaryxml-root/" + document.Key, () => Framed(document.Value));
            foreach (var value in Contracts())
                Samples.Try("binaryxml-datacontract/" + value.Key, () => Framed(BinaryXml.Envelope(
                    "http://shop.example/2026/Put", writer => new DataContractSerializer(value.Value.GetType()).WriteObject(writer, value.Value)),
                    "DataContractSerializer by XmlDictionaryWriter"));
            Samples.Try("binaryxml-unframed/envelope", () =>
            {
                var sample = Framed(BinaryXml.Envelope("urn:shop/unframed", writer => writer.WriteElementString("order", "urn:shop", "tea")));
                sample.Body = BinaryXml.Written(BinaryXml.Envelope("urn:shop/unframed", writer => writer.WriteElementString("order", "urn:shop", "tea")));
                sample.Kind = "wcf|bytes";
                sample.Framework = null;
                return sample;
            });
        }

        static Sample Framed(Action<XmlDictionaryWriter> content)
        {
            return Framed(content, "XmlDictionaryWriter, binary");
        }

        static Sample Framed(Action<XmlDictionaryWriter> content, string writer)
        {
            var document = BinaryXml.Written(content);
            var xml = BinaryXml.Text(document);
            return new Sample
            {
                Writer = writer, Kind = "wcf", Framework = "wcf", Xml = xml, Contains = BinaryXml.LeavesOf(xml),
                Body = Framing.Datagram("net.msmq://shop.example/private/orders", Framing.Binary, document),
            };
        }

        static void Element(XmlDictionaryWriter writer, string name, Action content)
        {
            writer.WriteStartElement(name);
            content();
            writer.WriteEndElement();
        }

        static Dictionary<string, Action<XmlDictionaryWriter>> Documents()
        {
            var token = new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff");
            var documents = new Dictionary<string, Action<XmlDictionaryWriter>>
            {
                { "bool", w => { Element(w, "t", () => w.WriteValue(true)); Element(w, "f", () => w.WriteValue(false)); } },
                { "int-zero-and-one", w => { Element(w, "zero", () => w.WriteValue(0)); Element(w, "one", () => w.WriteValue(1)); } },
                { "int-of-every-size", w =>
                    {
                        foreach (var number in new[] { 2, -1, 127, -128, 128, 32767, -32768, 32768, int.MaxValue, int.MinValue })
                            Element(w, "n", () => w.WriteValue(number));
                    }
                },
                { "long", w => { foreach (var number in new[] { 5L, 1L << 40, long.MinValue, long.MaxValue }) Element(w, "n", () => w.WriteValue(number)); } },
                { "float", w => { foreach (var number in new[] { 1.5f, 2f, -2f, 0.1f, 1e7f, 1e9f, 1e10f, 1e20f, 1e-5f, 16777216f, float.MaxValue, float.NaN, float.PositiveInfinity, float.NegativeInfinity }) Element(w, "n", () => w.WriteValue(number)); } },
                { "double", w => { foreach (var number in new[] { 0, 1.5, 0.1, -3, double.MaxValue, double.Epsilon, double.NaN, double.PositiveInfinity, double.NegativeInfinity, 1e9, 1e10, 1e15, 1e16, -1e16, 9007199254740993, 1e18, 1e19, 1e20, 1e21, 1e22, 123456.789, 0.001, 0.0001, 1e-5, 1.25e-7, 1e100 }) Element(w, "n", () => w.WriteValue(number)); } },
                { "decimal", w => { foreach (var number in new[] { 129.90m, 0m, -1.5m, 100m, decimal.MaxValue, decimal.MinValue, 0.0000000000000000000000000001m }) Element(w, "n", () => w.WriteValue(number)); } },
                { "datetime", w =>
                    {
                        var moment = new DateTime(2026, 11, 19, 15, 30, 0);
                        Element(w, "unspecified", () => w.WriteValue(moment));
                        Element(w, "utc", () => w.WriteValue(DateTime.SpecifyKind(moment.AddTicks(1234567), DateTimeKind.Utc)));
                        Element(w, "tenth", () => w.WriteValue(moment.AddMilliseconds(100)));
                        Element(w, "least", () => w.WriteValue(DateTime.MinValue));
                        Element(w, "most", () => w.WriteValue(DateTime.MaxValue));
                    }
                },
                { "guid", w => { Element(w, "g", () => w.WriteValue(token)); Element(w, "empty", () => w.WriteValue(Guid.Empty)); } },
                { "uniqueid", w => { Element(w, "guid", () => w.WriteValue(new UniqueId(token))); Element(w, "text", () => w.WriteValue(new UniqueId("urn:mine:1"))); } },
                { "timespan", w => { foreach (var span in new[] { TimeSpan.Zero, new TimeSpan(1, 2, 3, 4, 500), TimeSpan.FromTicks(-1), TimeSpan.MaxValue, TimeSpan.FromDays(400) }) Element(w, "s", () => w.WriteValue(span)); } },
                { "bytes-0-to-4", w => { for (var size = 0; size < 5; size++) Element(w, "b", () => w.WriteBase64(new byte[] { 1, 2, 3, 4 }, 0, size)); } },
                { "bytes-300", w => Element(w, "b", () => w.WriteBase64(Enumerable.Range(0, 300).Select(number => (byte)number).ToArray(), 0, 300)) },
                { "bytes-in-chunks", w => Element(w, "b", () => { w.WriteBase64(new byte[] { 1, 2, 3, 4 }, 0, 4); w.WriteBase64(new byte[] { 5, 6 }, 0, 2); w.WriteBase64(new byte[] { 7 }, 0, 1); }) },
                { "bytes-hex", w => Element(w, "b", () => w.WriteBinHex(new byte[] { 0xCA, 0xFE }, 0, 2)) },
                { "text", w => { foreach (var text in new[] { "", "0", "1", "true", "x", "some text", "Grüße, 世界", "\U0001F600" }) Element(w, "t", () => w.WriteString(text)); } },
                { "text-255-and-256", w => { Element(w, "t", () => w.WriteString(new string('a', 255))); Element(w, "t", () => w.WriteString(new string('b', 256))); } },
                { "text-66000", w => Element(w, "t", () => w.WriteString(new string('c', 66000))) },
                { "text-markup", w => Element(w, "t", () => w.WriteString("a < b & c > \"d\" 'e' ]]>")) },
                { "text-in-pieces", w => Element(w, "t", () => { w.WriteString("one "); w.WriteString("two "); w.WriteChars(new[] { 't', 'h' }, 0, 2); w.WriteValue(3); w.WriteValue(true); }) },
                { "text-spaces", w => { Element(w, "t", () => w.WriteString("  ")); Element(w, "t", () => w.WriteWhitespace("\n\t")); Element(w, "t", () => w.WriteString("line\r\nline")); } },
                { "text-cdata", w => Element(w, "t", () => w.WriteCData("a < b")) },
                { "text-references", w => Element(w, "t", () => { w.WriteCharEntity('&'); w.WriteCharEntity('€'); w.WriteSurrogateCharEntity('\uDE00', '\uD83D'); }) },
                { "text-from-dictionary", w => { Element(w, "t", () => w.WriteString(StaticDictionary.Known("Envelope"))); w.WriteElementString("t", "Action"); } },
                { "comment", w => { w.WriteComment(" a comment "); Element(w, "t", () => { w.WriteString("before"); w.WriteComment("in"); w.WriteString("after"); }); } },
                { "empty-elements", w => { w.WriteStartElement("a"); w.WriteEndElement(); w.WriteStartElement("b"); w.WriteFullEndElement(); } },
                { "mixed-content", w => { w.WriteString("one "); w.WriteElementString("b", "two"); w.WriteString(" three "); w.WriteStartElement("i"); w.WriteEndElement(); w.WriteString(" four"); } },
                { "long-name", w => w.WriteElementString(new string('n', 300), "value") },
                { "unicode-name", w => w.WriteElementString("größe", "XL") },
                { "deep", w => { for (var level = 0; level < 40; level++) w.WriteStartElement("level" + level); w.WriteString("bottom"); for (var level = 0; level < 40; level++) w.WriteEndElement(); } },
                { "prefixes-a-to-z", w => { for (var letter = 'a'; letter <= 'z'; letter++) w.WriteElementString(letter.ToString(), "name", "urn:" + letter, letter.ToString()); } },
                { "prefixes-a-to-z-dictionary", w =>
                    {
                        for (var letter = 'a'; letter <= 'z'; letter++)
                        {
                            w.WriteStartElement(letter.ToString(), StaticDictionary.Known("Identifier"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm"));
                            w.WriteString(letter.ToString());
                            w.WriteEndElement();
                        }
                    }
                },
                { "prefixes-long", w => { w.WriteElementString("abc", "name", "urn:abc", "1"); w.WriteStartElement("xyz", StaticDictionary.Known("Nonce"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/sc")); w.WriteEndElement(); } },
                { "attributes", w =>
                    {
                        w.WriteAttributeString("plain", "value");
                        w.WriteAttributeString("empty", "");
                        w.WriteAttributeString("quoted", "a \"b\" 'c' < & >");
                        w.WriteAttributeString("p", "prefixed", "urn:p", "in p");
                        w.WriteAttributeString("longprefix", "prefixed", "urn:long", "in long");
                        w.WriteAttributeString("xml", "lang", null, "de");
                        w.WriteAttributeString("xml", "space", null, "preserve");
                    }
                },
                { "attributes-a-to-z", w => { for (var letter = 'a'; letter <= 'z'; letter++) w.WriteAttributeString(letter.ToString(), "name", "urn:" + letter, letter.ToString()); } },
                { "attributes-a-to-z-dictionary", w =>
                    {
                        for (var letter = 'a'; letter <= 'z'; letter++)
                        {
                            w.WriteStartElement("e");
                            w.WriteAttributeString(letter.ToString(), StaticDictionary.Known("Id"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm"), letter.ToString());
                            w.WriteEndElement();
                        }
                    }
                },
                { "attributes-dictionary", w =>
                    {
                        w.WriteAttributeString(StaticDictionary.Known("Id"), null, "one");
                        w.WriteAttributeString("longprefix", StaticDictionary.Known("Id"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/sc"), "two");
                    }
                },
                { "attributes-typed", w =>
                    {
                        var number = 0;
                        foreach (var value in new object[]
                        {
                            0, 1, 42, -300, 70000, 1L << 40, ulong.MaxValue, true, false, 1.5f, 2.5, 1.50m, token, new UniqueId(token), new UniqueId("urn:mine:1"),
                            new DateTime(2026, 1, 2, 3, 4, 5, DateTimeKind.Utc), new TimeSpan(1, 2, 3, 4), "text", new string('a', 300), StaticDictionary.Known("Reply"),
                        })
                        {
                            w.WriteStartAttribute("a" + number++);
                            w.WriteValue(value);
                            w.WriteEndAttribute();
                        }
                        foreach (var size in new[] { 4, 300 })
                        {
                            w.WriteStartAttribute("raw" + size);
                            w.WriteBase64(new byte[size], 0, size);
                            w.WriteEndAttribute();
                        }
                    }
                },
                { "attribute-qname", w =>
                    {
                        w.WriteXmlnsAttribute("q", StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm"));
                        w.WriteStartAttribute("name");
                        w.WriteQualifiedName(StaticDictionary.Known("Sequence"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm"));
                        w.WriteEndAttribute();
                    }
                },
                { "elements-of-objects", w =>
                    {
                        foreach (var value in new object[] { (byte)200, (sbyte)-5, (short)-300, (ushort)60000, 4000000000u, ulong.MaxValue, 5UL, 1.5m, token, TimeSpan.FromHours(1), new Uri("http://shop.example/a b"), new byte[] { 1, 2, 3 } })
                            Element(w, "v", () => w.WriteValue(value));
                    }
                },
                { "attribute-list", w => { w.WriteStartAttribute("list"); w.WriteValue(new object[] { 1, "two", true, 2.5 }); w.WriteEndAttribute(); } },
                { "element-list", w => Element(w, "list", () => w.WriteValue(new object[] { 1, "two", true, 2.5, token })) },
                { "namespaces", w =>
                    {
                        w.WriteXmlnsAttribute("p", "urn:p");
                        w.WriteXmlnsAttribute("longprefix", "urn:long");
                        w.WriteXmlnsAttribute("d", StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/sc"));
                        w.WriteXmlnsAttribute("dictionary", StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/trust"));
                        w.WriteElementString("inner", "urn:other", "default changed");
                        w.WriteElementString("inner", "", "none");
                    }
                },
                { "qname", w =>
                    {
                        w.WriteXmlnsAttribute("q", StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm"));
                        w.WriteXmlnsAttribute("p", "urn:p");
                        Element(w, "known", () => w.WriteQualifiedName(StaticDictionary.Known("Sequence"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm")));
                        Element(w, "text", () => w.WriteQualifiedName("name", "urn:p"));
                    }
                },
                { "xsi-nil-and-type", w =>
                    {
                        w.WriteStartElement("nothing");
                        w.WriteAttributeString("i", "nil", "http://www.w3.org/2001/XMLSchema-instance", "true");
                        w.WriteEndElement();
                    }
                },
                { "array-empty", w => w.WriteArray(null, "n", "urn:shop", new int[0], 0, 0) },
                { "array-bool", w => w.WriteArray(null, "n", "urn:shop", new[] { true, false, true }, 0, 3) },
                { "array-short", w => w.WriteArray(null, "n", "urn:shop", new short[] { 1, -2, 300 }, 0, 3) },
                { "array-int", w => w.WriteArray(null, "n", "urn:shop", new[] { 1, -2, 70000 }, 0, 3) },
                { "array-int-300", w => w.WriteArray(null, "n", "urn:shop", Enumerable.Range(0, 300).ToArray(), 0, 300) },
                { "array-long", w => w.WriteArray(null, "n", "urn:shop", new[] { 1L, long.MinValue }, 0, 2) },
                { "array-float", w => w.WriteArray(null, "n", "urn:shop", new[] { 1.5f, -0.25f }, 0, 2) },
                { "array-double", w => w.WriteArray(null, "n", "urn:shop", new[] { 1.5, 1e300 }, 0, 2) },
                { "array-decimal", w => w.WriteArray(null, "n", "urn:shop", new[] { 1.10m, -2m }, 0, 2) },
                { "array-datetime", w => w.WriteArray(null, "n", "urn:shop", new[] { new DateTime(2026, 1, 2), new DateTime(2026, 1, 2, 3, 4, 5, DateTimeKind.Utc) }, 0, 2) },
                { "array-guid", w => w.WriteArray(null, "n", "urn:shop", new[] { token, Guid.Empty }, 0, 2) },
                { "array-timespan", w => w.WriteArray(null, "n", "urn:shop", new[] { TimeSpan.FromMinutes(90), TimeSpan.FromDays(-1) }, 0, 2) },
                { "array-prefixed", w => w.WriteArray("p", "n", "urn:p", new[] { 5, 6 }, 0, 2) },
                { "array-dictionary", w => w.WriteArray("r", StaticDictionary.Known("Upper"), StaticDictionary.Known("http://schemas.xmlsoap.org/ws/2005/02/rm"), new[] { 7, 8 }, 0, 2) },
            };
            for (var start = 0; start < StaticDictionary.Count; start += 100) // every string of the static dictionary
            {
                var first = start;
                documents.Add("static-dictionary-" + first, w =>
                {
                    for (var index = first; index < Math.Min(first + 100, StaticDictionary.Count); index++)
                        Element(w, "t", () => w.WriteString(StaticDictionary.At(index)));
                });
            }
            return documents;
        }

        static Dictionary<string, Action<XmlDictionaryWriter>> Roots()
        {
            return new Dictionary<string, Action<XmlDictionaryWriter>>
            {
                { "plain", w => w.WriteElementString("order", "tea") },
                { "default-namespace", w => { w.WriteStartElement("order", "urn:shop"); w.WriteElementString("count", "urn:shop", "2"); w.WriteEndElement(); } },
                { "prefix", w => { w.WriteStartElement("o", "order", "urn:shop"); w.WriteAttributeString("o", "id", "urn:shop", "7"); w.WriteEndElement(); } },
                { "dictionary-name", w => { w.WriteStartElement(StaticDictionary.Known("Fault"), StaticDictionary.Known(BinaryXml.Soap)); w.WriteString("text"); w.WriteEndElement(); } },
                { "array", w => { w.WriteStartElement("list"); w.WriteArray(null, "n", null, new[] { 1, 2, 3 }, 0, 3); w.WriteEndElement(); } },
                { "comment-before", w => { w.WriteComment("first"); w.WriteElementString("order", "tea"); } },
            };
        }

        static Dictionary<string, object> Contracts()
        {
            return new Dictionary<string, object>
            {
                { "order", Order.Example() },
                { "string", "hello" },
                { "ints", new[] { 1, 2, 3 } },
                { "dictionary", new Dictionary<string, decimal> { { "tea", 3.50m } } },
                { "objects", new object[] { 1, "two", 3.5, new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff"), new DateTime(2026, 1, 1, 0, 0, 0, DateTimeKind.Utc), TimeSpan.FromHours(1) } },
            };
        }
    }
}
