// Messages of WCF in a queue: the framing of [MC-NMF] as [MS-NMFMB] uses it, around binary, text and MTOM messages.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.RegularExpressions;
using System.Xml;

namespace Postroad.Samples
{
    /// <summary>[MC-NMF] 2.2: a datagram is version, mode, via, encoding and the message; a session has sized envelopes.</summary>
    static class Framing
    {
        public const byte Soap11Utf8 = 0, Soap12Utf8 = 3, Binary = 7, BinarySession = 8;
        const byte Simplex = 3, SingletonSized = 4;

        public static byte[] Datagram(string via, byte encoding, byte[] message)
        {
            return Join(Start(SingletonSized, via), new byte[] { 3, encoding }, message);
        }

        public static byte[] Datagram(string via, string contentType, byte[] message)
        {
            return Join(Start(SingletonSized, via), new byte[] { 4 }, Counted(Encoding.UTF8.GetBytes(contentType)), message);
        }

        public static byte[] Session(string via, byte encoding, IEnumerable<byte[]> messages)
        {
            var envelopes = messages.Select(message => Join(new byte[] { 6 }, Counted(message)));
            return Join(Start(Simplex, via), new byte[] { 3, encoding }, new byte[] { 12 }, Join(envelopes.ToArray()), new byte[] { 7 });
        }

        static byte[] Start(byte mode, string via)
        {
            return Join(new byte[] { 0, 1, 0, 1, mode, 2 }, Counted(Encoding.UTF8.GetBytes(via)));
        }

        /// <summary>The bytes after their number, seven bits a byte.</summary>
        public static byte[] Counted(byte[] bytes)
        {
            var size = new List<byte>();
            var rest = bytes.Length;
            for (; rest >= 0x80; rest >>= 7)
                size.Add((byte)(rest & 0x7F | 0x80));
            size.Add((byte)rest);
            return Join(size.ToArray(), bytes);
        }

        public static byte[] Join(params byte[][] parts)
        {
            return parts.SelectMany(part => part).ToArray();
        }
    }

    static class WcfSamples
    {
        const string Via = "net.msmq://shop.example/private/orders";
        const string Writer = "XmlDictionaryWriter, text, in netMsmq framing";

        public static void All()
        {
            foreach (var envelope in Envelopes())
            {
                Samples.Try("netmsmq/" + envelope.Key, () => Datagram(envelope.Value));
                Samples.Try("netmsmq-session/" + envelope.Key, () => Session(envelope.Value, envelope.Value));
            }
            Samples.Try("netmsmq-session/several-messages", () => Session(Envelopes().Values.ToArray()));
            Samples.Try("netmsmq-session/none-in-dictionary", () => Session(writer =>
            {
                writer.WriteStartElement("order", "urn:shop");
                writer.WriteString("no string is in a dictionary");
                writer.WriteEndElement();
            }));
            Texts();
            Mtom();
        }

        static Sample Datagram(Action<XmlDictionaryWriter> envelope)
        {
            var document = BinaryXml.Written(envelope);
            return Wcf("XmlDictionaryWriter, binary, in netMsmq framing", Framing.Datagram(Via, Framing.Binary, document), BinaryXml.Text(document));
        }

        static Sample Session(params Action<XmlDictionaryWriter>[] envelopes)
        {
            var session = new WriterSession();
            var reader = new XmlBinaryReaderSession();
            var messages = new List<byte[]>();
            var xml = "";
            foreach (var envelope in envelopes)
            {
                var known = session.New.Count;
                var document = BinaryXml.Written(envelope, StaticDictionary.Strings, session);
                var strings = session.New.Skip(known).Select(text => Framing.Counted(Encoding.UTF8.GetBytes(text)));
                messages.Add(Framing.Join(Framing.Counted(Framing.Join(strings.ToArray())), document));
                for (var key = known; key < session.New.Count; key++)
                    reader.Add(key, session.New[key]);
                xml += BinaryXml.Text(document, reader) + "\n";
            }
            return Wcf("XmlDictionaryWriter, binary with a session, in netMsmq framing", Framing.Session(Via, Framing.BinarySession, messages), xml);
        }

        static Sample Wcf(string writer, byte[] body, string xml)
        {
            return new Sample { Writer = writer, Kind = "wcf", Framework = "wcf", Body = body, Xml = xml, Contains = BinaryXml.LeavesOf("<all>" + xml + "</all>").Skip(1) };
        }

        static Dictionary<string, Action<XmlDictionaryWriter>> Envelopes()
        {
            var dictionary = new XmlDictionary(); // of the contract: its strings go into a session, not into a datagram
            XmlDictionaryString tempuri = dictionary.Add("http://tempuri.org/"), create = dictionary.Add("Create"), name = dictionary.Add("name");
            var addressing = StaticDictionary.Known(BinaryXml.Addressing);
            return new Dictionary<string, Action<XmlDictionaryWriter>>
            {
                { "request", BinaryXml.Envelope("http://tempuri.org/IOrders/Create", writer =>
                    {
                        writer.WriteStartElement(create, tempuri);
                        writer.WriteStartElement(name, tempuri);
                        writer.WriteString("Ada Lovelace");
                        writer.WriteEndElement();
                        writer.WriteElementString("count", "http://tempuri.org/", "3");
                        writer.WriteEndElement();
                    })
                },
                { "addressing", BinaryXml.Envelope("http://tempuri.org/IOrders/Ask", writer => writer.WriteElementString("Ask", "http://tempuri.org/", "?"), writer =>
                    {
                        writer.WriteStartElement("a", StaticDictionary.Known("MessageID"), addressing);
                        writer.WriteValue(new UniqueId(new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff")));
                        writer.WriteEndElement();
                        writer.WriteStartElement("a", StaticDictionary.Known("ReplyTo"), addressing);
                        writer.WriteStartElement("a", StaticDictionary.Known("Address"), addressing);
                        writer.WriteString(StaticDictionary.Known("http://www.w3.org/2005/08/addressing/anonymous"));
                        writer.WriteEndElement();
                        writer.WriteEndElement();
                        writer.WriteStartElement("a", StaticDictionary.Known("RelatesTo"), addressing);
                        writer.WriteString("urn:uuid:00000000-0000-0000-0000-000000000001");
                        writer.WriteEndElement();
                        writer.WriteElementString("tenant", "urn:shop/headers", "north & south");
                    })
                },
                { "empty-body", BinaryXml.Envelope("http://tempuri.org/IOrders/Ping", writer => { }) },
                { "fault", BinaryXml.Envelope("http://www.w3.org/2005/08/addressing/soap/fault", writer =>
                    {
                        var soap = StaticDictionary.Known(BinaryXml.Soap);
                        writer.WriteStartElement("s", StaticDictionary.Known("Fault"), soap);
                        writer.WriteStartElement("s", StaticDictionary.Known("Code"), soap);
                        writer.WriteStartElement("s", StaticDictionary.Known("Value"), soap);
                        writer.WriteString("s:Sender");
                        writer.WriteEndElement();
                        writer.WriteEndElement();
                        writer.WriteStartElement("s", StaticDictionary.Known("Reason"), soap);
                        writer.WriteStartElement("s", StaticDictionary.Known("Text"), soap);
                        writer.WriteAttributeString("xml", "lang", null, "en-US");
                        writer.WriteString("No such order");
                        writer.WriteEndElement();
                        writer.WriteEndElement();
                        writer.WriteEndElement();
                    })
                },
            };
        }

        static void Texts()
        {
            Encoding little = new UnicodeEncoding(false, false), big = new UnicodeEncoding(true, false);
            foreach (var number in new Dictionary<string, byte> { { "soap11", 0 }, { "soap12", 3 } }) // both orders of bytes: the names do not say which
            {
                var utf8 = number.Value;
                Known(number.Key + "-utf8", utf8, new UTF8Encoding(false));
                Known(number.Key + "-utf16-little", (byte)(utf8 + 1), little);
                Known(number.Key + "-utf16-big", (byte)(utf8 + 1), big);
                Known(number.Key + "-unicode-little", (byte)(utf8 + 2), little);
                Known(number.Key + "-unicode-big", (byte)(utf8 + 2), big);
            }
            // What the text encoder of WCF calls UTF-16 has no number of its own, and starts with a declaration.
            foreach (var encoding in new Dictionary<string, Encoding> { { "utf-16", little }, { "utf-16BE", big } })
                Samples.Try("netmsmq-text/content-type-" + encoding.Key, () =>
                {
                    var document = Text(encoding.Value, true);
                    return Wcf(Writer, Framing.Datagram(Via, "application/soap+xml; charset=" + encoding.Key, document), Xml(document, encoding.Value));
                });
            Samples.Try("netmsmq-text/session", () =>
            {
                var document = Text(new UTF8Encoding(false));
                var xml = Xml(document, new UTF8Encoding(false));
                return Wcf(Writer, Framing.Session(Via, Framing.Soap12Utf8, new[] { document, document }), xml + "\n" + xml);
            });
        }

        static void Known(string name, byte number, Encoding encoding)
        {
            Samples.Try("netmsmq-text/" + name, () =>
            {
                var document = Text(encoding);
                return Wcf(Writer, Framing.Datagram(Via, number, document), Xml(document, encoding));
            });
        }

        static byte[] Text(Encoding encoding, bool declared = false)
        {
            var output = new MemoryStream();
            using (var writer = XmlDictionaryWriter.CreateTextWriter(output, encoding, false))
            {
                if (declared)
                    writer.WriteStartDocument();
                Envelopes()["request"](writer);
            }
            return output.ToArray();
        }

        static string Xml(byte[] document, Encoding encoding)
        {
            using (var reader = XmlDictionaryReader.CreateTextReader(document, 0, document.Length, encoding, XmlDictionaryReaderQuotas.Max, null))
                return BinaryXml.Text(reader);
        }

        /// <summary>The writer numbers its attachments by the clock; here they have one number, for the same bytes each time.</summary>
        static byte[] Constant(byte[] message)
        {
            var latin = Encoding.GetEncoding("iso-8859-1");
            return latin.GetBytes(Regex.Replace(latin.GetString(message), @"(http://tempuri\.org/1/)\d+", "${1}639306998420892970"));
        }

        static void Mtom()
        {
            var raw = Enumerable.Range(0, 2000).Select(number => (byte)(number * 7)).ToArray();
            var contents = new Dictionary<string, Action<XmlDictionaryWriter>>
            {
                { "attachment", BinaryXml.Envelope("urn:shop/picture", writer =>
                    {
                        writer.WriteStartElement("picture", "urn:shop");
                        writer.WriteBase64(raw, 0, raw.Length);
                        writer.WriteEndElement();
                    })
                },
                { "inline", BinaryXml.Envelope("urn:shop/picture", writer => writer.WriteElementString("picture", "urn:shop", "none & nothing")) },
            };
            foreach (var content in contents)
                Samples.Try("netmsmq-mtom/" + content.Key, () =>
                {
                    var output = new MemoryStream();
                    using (var writer = XmlDictionaryWriter.CreateMtomWriter(output, Encoding.UTF8, int.MaxValue, "application/soap+xml", "uuid:boundary+id=1", "http://tempuri.org/0", true, false))
                        content.Value(writer);
                    var message = Constant(output.ToArray());
                    string xml;
                    using (var reader = XmlDictionaryReader.CreateMtomReader(message, 0, message.Length, new[] { Encoding.UTF8 }, XmlDictionaryReaderQuotas.Max))
                        xml = BinaryXml.Text(reader);
                    return Wcf("XmlDictionaryWriter, MTOM, in netMsmq framing", Framing.Datagram(Via, "multipart/related; type=\"application/xop+xml\"", message), xml);
                });
        }
    }
}
