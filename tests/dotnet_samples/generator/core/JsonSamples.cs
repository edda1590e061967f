// JSON as System.Text.Json and Json.NET write it.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Text;
using System.Text.Encodings.Web;
using System.Text.Json;
using Shop;

namespace Postroad.Samples
{
    static class JsonSamples
    {
        public static void All()
        {
            var values = new Dictionary<string, object>
            {
                { "object", Order.Example() },
                { "array", new[] { 1, 2, 3 } },
                { "array-of-objects", new[] { new { Name = "Ada", Born = 1815 }, new { Name = "Grace", Born = 1906 } } },
                { "empty-object", new { } },
                { "empty-array", new int[0] },
                { "unicode-escaped", new { Text = "Grüße, 世界 \U0001F600 <b> & 'c' \"d\"" } },
                { "numbers", new { Whole = long.MaxValue, Big = ulong.MaxValue, Part = 0.1, Money = 129.90m, Exact = 79228162514264337593543950335m, Tiny = 1e-300, Minus = -1 } },
                { "nested", new { A = new { B = new { C = new object[] { 1, "two", null, true, new { D = new int[0] } } } } } },
                { "dictionary", new Dictionary<string, object> { { "", "empty key" }, { "a b", 1 }, { "ключ", true }, { "q\"uote", null } } },
                { "dates", new { Utc = new DateTime(2026, 11, 19, 15, 30, 0, DateTimeKind.Utc), Offset = new DateTimeOffset(2026, 11, 19, 17, 30, 0, TimeSpan.FromHours(2)), Token = new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff") } },
                { "bytes", new { Raw = new byte[] { 1, 2, 3 } } },
            };
            foreach (var value in values)
            {
                Samples.Try("json/" + value.Key, () => Json(JsonSerializer.SerializeToUtf8Bytes(value.Value, value.Value.GetType(), new JsonSerializerOptions()), "json", "System.Text.Json"));
                Samples.Try("json-newtonsoft/" + value.Key, () => Json(Encoding.UTF8.GetBytes(Newtonsoft.Json.JsonConvert.SerializeObject(value.Value)), "json", "Json.NET"));
            }
            var relaxed = new JsonSerializerOptions { WriteIndented = true, Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping };
            Samples.Try("json/indented-unescaped", () => Json(JsonSerializer.SerializeToUtf8Bytes(values["unicode-escaped"], values["unicode-escaped"].GetType(), relaxed), "json", "System.Text.Json"));
            Samples.Try("json/string", () => Json(JsonSerializer.SerializeToUtf8Bytes("hello"), "json|text", "System.Text.Json"));
            Samples.Try("json/null", () => Json(JsonSerializer.SerializeToUtf8Bytes<object>(null), "json|text", "System.Text.Json"));
            Samples.Try("json/true", () => Json(JsonSerializer.SerializeToUtf8Bytes(true), "json|text", "System.Text.Json"));
            Samples.Try("json/utf-8-bom", () => Encoded(new UTF8Encoding(true), "json"));
            Samples.Try("json/utf-16-bom", () => Encoded(Encoding.Unicode, "json"));
            Samples.Try("json/utf-16", () => Encoded(new UnicodeEncoding(false, false), "json"));
        }

        static Sample Encoded(Encoding encoding, string kind)
        {
            var text = JsonSerializer.Serialize(Order.Example());
            var sample = Json(Encoding.UTF8.GetBytes(text), kind, "System.Text.Json");
            sample.Body = encoding.GetPreamble().Concat(encoding.GetBytes(text)).ToArray();
            return sample;
        }

        static Sample Json(byte[] body, string kind, string writer)
        {
            return new Sample { Writer = writer, Body = body, Kind = kind, Contains = Leaves.OfJson(body).ToList() };
        }
    }
}
