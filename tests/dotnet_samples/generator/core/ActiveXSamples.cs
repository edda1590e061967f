// Bodies with a VARIANT type. ActiveXMessageFormatter of .NET writes what `Formatter` lists: a truth in one byte, a time
// as ticks. A COM component writes a VARIANT_BOOL of two bytes and a time in days. Neither runs here (mono's formatter
// is empty), so the bytes are made with BitConverter.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Text;

namespace Postroad.Samples
{
    static class ActiveXSamples
    {
        const int Null = 1, I2 = 2, I4 = 3, R4 = 4, R8 = 5, Currency = 6, Date = 7, Bstr = 8, Bool = 11, I1 = 16, Ui1 = 17, Ui2 = 18, Ui4 = 19, I8 = 20,
            Ui8 = 21, Lpstr = 30, Lpwstr = 31, Clsid = 72, Vector = 0x1000, Array = 0x2000;

        public static void All()
        {
            var culture = CultureInfo.InvariantCulture;
            foreach (short number in new short[] { 0, -1, short.MinValue, short.MaxValue })
                Number("short/" + number.ToString(culture), I2, BitConverter.GetBytes(number), number.ToString(culture));
            foreach (var number in new[] { 42, int.MinValue, int.MaxValue })
                Number("int/" + number.ToString(culture), I4, BitConverter.GetBytes(number), number.ToString(culture));
            foreach (var number in new[] { 5L, long.MinValue, long.MaxValue })
                Number("long/" + number.ToString(culture), I8, BitConverter.GetBytes(number), number.ToString(culture));
            Number("ushort", Ui2, BitConverter.GetBytes(ushort.MaxValue), "65535");
            Number("uint", Ui4, BitConverter.GetBytes(uint.MaxValue), "4294967295");
            Number("ulong", Ui8, BitConverter.GetBytes(ulong.MaxValue), "18446744073709551615");
            Number("byte", Ui1, new byte[] { 200 }, "200");
            Number("sbyte", I1, new byte[] { 0x80 }, "-128");
            Number("char", Ui2, BitConverter.GetBytes('A'), "65");
            Number("float", R4, BitConverter.GetBytes(1.5f), "1.5");
            Number("double", R8, BitConverter.GetBytes(3.141592653589793), "3.141592653589793");
            foreach (var amount in new[] { 129.9m, -0.0001m, 922337203685477.5807m })
                Number("currency/" + amount.ToString(culture), Currency, BitConverter.GetBytes(decimal.ToOACurrency(amount)), null, amount.ToString(culture));
            Number("true", Bool, new byte[] { 0xFF }, "true");
            Number("false", Bool, new byte[] { 0 }, "false");
            Number("com-true", Bool, BitConverter.GetBytes((short)-1), "true");
            Number("com-false", Bool, BitConverter.GetBytes((short)0), "false");
            var moment = new DateTime(2026, 11, 19, 15, 30, 45);
            Number("date-ticks", Date, BitConverter.GetBytes(moment.Ticks), null, "2026-11-19", "15:30:45");
            Number("com-date", Date, BitConverter.GetBytes(moment.ToOADate()), null, "2026-11-19", "15:30:45");
            Number("com-date-before-1900", Date, BitConverter.GetBytes(new DateTime(1899, 12, 29, 6, 0, 0).ToOADate()), null, "1899-12-29", "06:00:00");
            var token = new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff");
            Number("guid", Clsid, token.ToByteArray(), token.ToString());
            Add("null", "activex|bytes|text", Null, new byte[0], null);

            foreach (var text in new Dictionary<string, string> { { "ascii", "hello" }, { "unicode", "Grüße, 世界 \U0001F600" }, { "empty", "" }, { "xml", "<order id=\"1\">tea</order>" } })
            {
                var kind = text.Key == "xml" ? "activex|text|xml" : text.Key == "empty" ? "activex|text|bytes" : "activex|text";
                Add("lpwstr/" + text.Key, kind, Lpwstr, Encoding.Unicode.GetBytes(text.Value), text.Key == "xml" ? null : text.Value, Leaves.OfText(text.Value).ToArray());
                Add("bstr/" + text.Key, kind, Bstr, Encoding.Unicode.GetBytes(text.Value), text.Key == "xml" ? null : text.Value, Leaves.OfText(text.Value).ToArray());
            }
            Add("bstr/terminated", "activex|text", Bstr, Encoding.Unicode.GetBytes("hello\0"), "hello", "hello");
            Add("lpstr/ascii", "activex|text", Lpstr, Encoding.ASCII.GetBytes("hello"), "hello", "hello");
            Add("vector-of-bytes", "activex|bytes", Vector | Ui1, new byte[] { 0, 1, 2, 253, 254, 255 }, null);
            Add("array-of-bytes", "activex|bytes", Array | Ui1, new byte[] { 0, 1, 2, 253, 254, 255 }, null);
        }

        static void Number(string name, int type, byte[] body, string text, params string[] contains)
        {
            Add(name, "activex", type, body, text, text == null ? contains : new[] { text });
        }

        static void Add(string name, string kind, int type, byte[] body, string text, params string[] contains)
        {
            var com = name.StartsWith("com-") || name.StartsWith("bstr");
            Samples.Try("activex/" + name, () => new Sample
            {
                Writer = com ? "a COM component's form" : "ActiveXMessageFormatter's form", Kind = kind, BodyType = type, Body = body, Text = text, Contains = contains,
            });
        }
    }
}
