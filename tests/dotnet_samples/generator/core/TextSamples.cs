// Plain text in the encodings of StreamWriter, and JSON as .NET's own serializer writes it.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using Shop;

namespace Postroad.Samples
{
    static class TextSamples
    {
        public static void All()
        {
            const string text = "Grüße aus Köln,\r\n世界 \U0001F600";
            var encodings = new Dictionary<string, Encoding>
            {
                { "utf-8", new UTF8Encoding(false) }, { "utf-8-bom", new UTF8Encoding(true) }, { "utf-16-bom", Encoding.Unicode },
                { "utf-16-be-bom", Encoding.BigEndianUnicode }, { "utf-32-bom", Encoding.UTF32 },
            };
            foreach (var encoding in encodings)
                Samples.Try("text/" + encoding.Key, () => Text(text, encoding.Value, encoding.Key == "utf-32-bom" ? "text|bytes" : "text"));
            // Without a byte order mark UTF-16 is a guess: sure only where every other byte is zero.
            Samples.Try("text/utf-16", () => Text("Grüße aus Köln, plain", new UnicodeEncoding(false, false), "text"));
            Samples.Try("text/utf-16-ascii", () => Text("plain old text", new UnicodeEncoding(false, false), "text"));
            Samples.Try("text/utf-16-be", () => Text("plain old text", new UnicodeEncoding(true, false), "text|bytes"));
            Samples.Try("text/utf-16-east", () => Text("世界", new UnicodeEncoding(false, false), "text|bytes"));
            Samples.Try("text/latin-1", () => Text("Grüße aus Köln", Encoding.GetEncoding("iso-8859-1"), "text|bytes"));
            Samples.Try("text/ascii", () => Text("plain old text", Encoding.ASCII, "text"));
            Samples.Try("text/one-character", () => Text("x", Encoding.ASCII, "text"));
            Samples.Try("text/number", () => Text("42", Encoding.ASCII, "text|json"));
            Samples.Try("text/looks-like-json", () => Text("{not json}", Encoding.ASCII, "text"));
            Samples.Try("text/looks-like-xml", () => Text("<not xml", Encoding.ASCII, "text"));
            Samples.Try("text/terminated", () => // as programs in C send it
            {
                var sample = Text("plain old text", Encoding.ASCII, "text");
                sample.Body = sample.Body.Concat(new byte[1]).ToArray();
                return sample;
            });
            Samples.Try("text/csv", () => Text("id;name\r\n1;Ada\r\n2;Grace\r\n", Encoding.ASCII, "text"));
            Samples.Try("bytes/binarywriter", BinaryWritten);
            Samples.Try("bytes/random", () => { var raw = new byte[256]; new Random(1).NextBytes(raw); return Bytes(raw); });
            Samples.Try("bytes/zeros", () => Bytes(new byte[16]));
            Samples.Try("bytes/all", () => Bytes(Enumerable.Range(0, 256).Select(number => (byte)number).ToArray()));
        }

        static Sample Text(string text, Encoding encoding, string kind)
        {
            var output = new MemoryStream();
            using (var writer = new StreamWriter(output, encoding))
                writer.Write(text);
            return new Sample
            {
                Writer = "StreamWriter", Body = output.ToArray(), Kind = kind, Text = kind == "text" ? text : null,
                Contains = kind == "text" ? Leaves.OfText(text).ToList() : new List<string>(),
            };
        }

        static Sample BinaryWritten()
        {
            var output = new MemoryStream();
            using (var writer = new BinaryWriter(output))
            {
                writer.Write(4711);
                writer.Write("Ada");
                writer.Write(129.90m);
                writer.Write(true);
            }
            return Bytes(output.ToArray());
        }

        static Sample Bytes(byte[] body)
        {
            return new Sample { Writer = "BinaryWriter", Body = body, Kind = "bytes" };
        }
    }
}
