// What BinaryFormatter writes, which is what BinaryMessageFormatter puts into a body of type 768.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Data;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Runtime.Serialization.Formatters;
using System.Runtime.Serialization.Formatters.Binary;
using System.Text;
using Shop;

namespace Postroad.Samples
{
    static class BinaryFormatterSamples
    {
        public static void All()
        {
            foreach (var group in new[] { Primitives(), Texts(), Arrays(), Objects(), Collections(), Platform() })
                foreach (var value in group)
                    Samples.Try("binaryformatter/" + value.Key, () => Formatted(value.Value(), new BinaryFormatter(), "nrbf"));
            Styles();
        }

        static Sample Formatted(object value, BinaryFormatter formatter, string kind)
        {
            var output = new MemoryStream();
            formatter.Serialize(output, value);
            var read = new BinaryFormatter().Deserialize(new MemoryStream(output.ToArray()));
            if (value is DataSet set)
                ((DataSet)read).RemotingFormat = set.RemotingFormat; // which a reader forgets
            return new Sample
            {
                Writer = "BinaryFormatter", Body = output.ToArray(), BodyType = Samples.BinaryObject, Kind = kind,
                Framework = "system.messaging", Contains = Leaves.OfObject(read).ToList(), Text = OneLine(read),
            };
        }

        /// <summary>The whole text of a value that everybody writes alike.</summary>
        static string OneLine(object value)
        {
            if (value is string text)
                return text.Any(char.IsControl) ? null : text;
            return value is bool ? value.ToString().ToLowerInvariant() : value is int || value is long || value is Guid ? value.ToString() : null;
        }

        static Dictionary<string, Func<object>> Primitives()
        {
            return new Dictionary<string, Func<object>>
            {
                { "true", () => true },
                { "false", () => false },
                { "byte", () => (byte)255 },
                { "sbyte", () => (sbyte)-128 },
                { "short", () => short.MinValue },
                { "ushort", () => ushort.MaxValue },
                { "int", () => 42 },
                { "int-least", () => int.MinValue },
                { "uint", () => uint.MaxValue },
                { "long", () => long.MinValue },
                { "ulong", () => ulong.MaxValue },
                { "float", () => 1.1f },
                { "float-most", () => float.MaxValue },
                { "float-nan", () => float.NaN },
                { "double", () => 3.141592653589793 },
                { "double-most", () => double.MaxValue },
                { "double-least", () => double.Epsilon },
                { "double-nan", () => double.NaN },
                { "double-endless", () => double.NegativeInfinity },
                { "char", () => 'A' },
                { "char-unicode", () => '世' },
                { "decimal", () => 129.90m },
                { "decimal-most", () => decimal.MaxValue },
                { "decimal-least", () => decimal.MinValue },
                { "decimal-small", () => 0.0000000000000000000000000001m },
                { "decimal-negative-zeros", () => -1.500m },
                { "decimal-zero", () => 0m },
                { "datetime-utc", () => new DateTime(2026, 11, 19, 15, 30, 0, DateTimeKind.Utc) },
                { "datetime-local", () => new DateTime(2026, 11, 19, 15, 30, 0, 123, DateTimeKind.Local) },
                { "datetime-unspecified", () => new DateTime(2026, 11, 19, 15, 30, 0, DateTimeKind.Unspecified).AddTicks(1234567) },
                { "datetime-least", () => DateTime.MinValue },
                { "datetime-most", () => DateTime.MaxValue },
                { "datetimeoffset", () => new DateTimeOffset(2026, 11, 19, 17, 30, 0, TimeSpan.FromHours(2)) },
                { "timespan", () => new TimeSpan(1, 2, 3, 4, 500) },
                { "timespan-negative", () => new TimeSpan(0, -2, -30, 0) },
                { "guid", () => new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff") },
                { "enum", () => State.Shipped },
                { "enum-byte", () => Rights.All },
                { "enum-long", () => Distance.Far },
                { "enum-ulong", () => Weight.Heavy },
                { "dbnull", () => DBNull.Value },
            };
        }

        static Dictionary<string, Func<object>> Texts()
        {
            return new Dictionary<string, Func<object>>
            {
                { "string", () => "hello" },
                { "string-empty", () => "" },
                { "string-unicode", () => "Grüße, 世界, Ελλάδα" },
                { "string-surrogates", () => "\U0001F600 and \U0001F4E8" },
                { "string-lone-surrogate", () => "half \uD83D pair" },
                { "string-controls", () => "a\0b\u0001c\u001Fd\u007Fe\u0085f" },
                { "string-lines", () => "one\r\ntwo\ttab\n\"quoted\" \\ back" },
                { "string-127", () => new string('x', 127) },
                { "string-128", () => new string('y', 128) },
                { "string-20000", () => string.Concat(Enumerable.Range(0, 4000).Select(number => (number % 1000).ToString("d4") + " ")) },
                { "string-of-xml", () => "<?xml version=\"1.0\"?><order id=\"1\">tea</order>" },
                { "string-of-json", () => "{\"order\": 1, \"tea\": [true, null]}" },
            };
        }

        static Dictionary<string, Func<object>> Arrays()
        {
            var shared = new Address { City = "Paris" };
            return new Dictionary<string, Func<object>>
            {
                { "array-int", () => new[] { 1, -2, 3 } },
                { "array-int-empty", () => new int[0] },
                { "array-int-1000", () => Enumerable.Range(0, 1000).ToArray() },
                { "array-byte", () => new byte[] { 0, 1, 2, 254, 255 } },
                { "array-sbyte", () => new sbyte[] { -1, 0, 1 } },
                { "array-short", () => new short[] { short.MinValue, 0, short.MaxValue } },
                { "array-ushort", () => new ushort[] { 0, 65535 } },
                { "array-uint", () => new uint[] { 0, 4294967295 } },
                { "array-long", () => new[] { long.MinValue, long.MaxValue } },
                { "array-ulong", () => new ulong[] { 0, ulong.MaxValue } },
                { "array-bool", () => new[] { true, false, true } },
                { "array-char", () => new[] { 'a', 'ß', '世' } },
                { "array-float", () => new[] { 1.5f, -0.25f } },
                { "array-double", () => new[] { 1.5, double.NaN, -1e300 } },
                { "array-decimal", () => new[] { 1.10m, -2m } },
                { "array-datetime", () => new[] { new DateTime(2026, 1, 2), DateTime.MaxValue } },
                { "array-timespan", () => new[] { TimeSpan.FromMinutes(90), TimeSpan.Zero } },
                { "array-guid", () => new[] { Guid.Empty, new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff") } },
                { "array-string", () => new[] { "a", "b", "c" } },
                { "array-string-same", () => new[] { "twice", "twice", "once" } },
                { "array-string-one-null", () => new[] { "a", null, "c" } },
                { "array-string-nulls", () => new[] { null, null, null, "d", null, null } },
                { "array-string-only-nulls", () => new string[3] },
                { "array-object-mixed", () => new object[] { 1, "two", 3.5, '4', true, null, 6.00m, State.Paid, new DateTime(2026, 1, 2) } },
                { "array-object-255-nulls", () => Sparse(255) },
                { "array-object-300-nulls", () => Sparse(300) },
                { "array-object-70000-nulls", () => Sparse(70000) },
                { "array-object-nested", () => new object[] { new object[] { 1, new object[] { "deep" } }, new[] { 2, 3 } } },
                { "array-enum", () => new[] { State.Open, State.Shipped } },
                { "array-nullable", () => new int?[] { 1, null, 3 } },
                { "array-struct", () => new[] { new Money { Amount = 1.5m, Currency = "EUR" }, new Money { Amount = 2m, Currency = "USD" } } },
                { "array-struct-of-primitives", () => new[] { new Point { X = 1, Y = 2 }, new Point { X = 3, Y = 4 } } },
                { "array-class", () => new[] { new Address { City = "Rome" }, null, new Address { City = "Oslo", Country = "NO" } } },
                { "array-class-derived", () => new Animal[] { new Animal("Cat"), new Dog("Rex", "Rex I"), new Puppy() } },
                { "array-class-shared", () => new[] { shared, shared, new Address { City = "Bern" } } },
                { "array-interface", () => new IComparable[] { "one", "two", null } },
                { "array-jagged", () => new[] { new[] { 1, 2 }, null, new int[0], new[] { 3 } } },
                { "array-jagged-string", () => new[] { new[] { "a" }, new[] { "b", null } } },
                { "array-jagged-three", () => new[] { new[] { new[] { 1 }, new[] { 2 } } } },
                { "array-rectangular-int", () => new[,] { { 1, 2, 3 }, { 4, 5, 6 } } },
                { "array-rectangular-string", () => new[,] { { "a", null }, { null, "d" } } },
                { "array-rectangular-object", () => new object[,] { { 1, "two" }, { null, 4.5 } } },
                { "array-rectangular-three", () => new[,,] { { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } } },
                { "array-rectangular-empty", () => new int[0, 3] },
                { "array-rectangular-of-arrays", () => new[,] { { new[] { 1 }, new[] { 2, 3 } } } },
                { "array-offset", () => Offset(new[] { 3 }, new[] { 5 }) },
                { "array-offset-negative", () => Offset(new[] { 2 }, new[] { -1 }) },
                { "array-offset-rectangular", () => Offset(new[] { 2, 2 }, new[] { 1, -1 }) },
                { "array-of-rectangular", () => new[] { new[,] { { 1, 2 } }, new[,] { { 3 }, { 4 } } } },
                { "array-list", () => new[] { new List<int> { 1, 2 }, new List<int>() } },
            };
        }

        static object[] Sparse(int nulls)
        {
            var values = new object[nulls + 2];
            values[0] = "first";
            values[nulls + 1] = "last";
            return values;
        }

        static Array Offset(int[] lengths, int[] bounds)
        {
            var values = Array.CreateInstance(typeof(int), lengths, bounds);
            var at = (int[])bounds.Clone();
            for (var value = 1; ; value++)
            {
                values.SetValue(value, at);
                var axis = at.Length - 1;
                while (axis >= 0 && ++at[axis] == bounds[axis] + lengths[axis])
                    at[axis] = bounds[axis--];
                if (axis < 0)
                    return values;
            }
        }

        static Dictionary<string, Func<object>> Objects()
        {
            return new Dictionary<string, Func<object>>
            {
                { "class", Order.Example },
                { "class-of-defaults", () => new Order() },
                { "class-empty", () => new Empty() },
                { "class-every-primitive", () => new EveryPrimitive() },
                { "class-boxed-values", () => new Boxed() },
                { "class-nullables", () => new Nullables() },
                { "class-46-members", () => new Wide() },
                { "class-inherited", () => new Dog("Rex", "Rex I") },
                { "class-inherited-twice", () => new Puppy() },
                { "class-nested", () => new Outer() },
                { "class-generic", () => new Box<int> { Value = 5 } },
                { "class-generic-string", () => new Box<string> { Value = "inside" } },
                { "class-generic-of-generic", () => new Box<Pair<string, List<Money>>>
                    {
                        Value = new Pair<string, List<Money>> { First = "prices", Second = new List<Money> { new Money { Amount = 5m, Currency = "CHF" } } },
                    }
                },
                { "class-generic-of-array", () => new Box<int[]> { Value = new[] { 7, 8 } } },
                { "class-generic-of-enum", () => new Box<State> { Value = State.Paid } },
                { "class-iserializable", () => new Own(7, "by itself", new Dog("Rex", "Rex I")) },
                { "class-of-iserializable", () => new Box<Own> { Value = new Own(8, "wrapped", null) } },
                { "struct", () => new Money { Amount = 12.34m, Currency = "EUR" } },
                { "struct-of-primitives", () => new Point { X = -1, Y = 1 } },
                { "circle-of-one", Circle },
                { "circle-of-two", CircleOfTwo },
                { "shared-reference", () => { var one = new Node { Name = "one" }; return new Pair<Node, Node> { First = one, Second = one }; } },
                { "shared-string", () => { var text = "the same"; return new Pair<string, object> { First = text, Second = text }; } },
                { "array-that-holds-itself", () => { var values = new object[2]; values[0] = values; values[1] = "end"; return values; } },
                { "same-class-twice", () => new[] { Order.Example(), new Order { Id = 2, Customer = "second" } } },
                { "chain-of-50", () => Chain(50) },
                { "object-tree", () => new Node
                    {
                        Name = "root", Anything = 1.5m,
                        Others = new[] { new Node { Name = "left", Anything = new[] { "x" } }, null, new Node { Name = "right", Anything = State.Paid } },
                    }
                },
                { "own-list", () => new Names { "Ada", "Grace" } },
                { "own-dictionary", () => new Prices { { "tea", 3.5m }, { "milk", 1.2m } } },
            };
        }

        static Node Circle()
        {
            var node = new Node { Name = "alone" };
            node.Next = node;
            return node;
        }

        static Node CircleOfTwo()
        {
            var first = new Node { Name = "first" };
            var second = new Node { Name = "second", Next = first };
            first.Next = second;
            first.Others = new[] { first, second };
            return first;
        }

        static Node Chain(int length)
        {
            Node chain = null;
            for (var number = length; number > 0; number--)
                chain = new Node { Name = "link " + number, Next = chain };
            return chain;
        }

        static Dictionary<string, Func<object>> Collections()
        {
            return new Dictionary<string, Func<object>>
            {
                { "list-int", () => new List<int> { 1, 2, 3, 4, 5 } },
                { "list-string", () => new List<string> { "a", null, "c" } },
                { "list-empty", () => new List<string>() },
                { "list-class", () => new List<Line> { new Line { Article = "tea", Count = 2, Price = 3.5m } } },
                { "list-struct", () => new List<Money> { new Money { Amount = 1m, Currency = "EUR" } } },
                { "list-object", () => new List<object> { 1, "two", null, new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff") } },
                { "list-of-lists", () => new List<List<int>> { new List<int> { 1 }, new List<int> { 2, 3 } } },
                { "list-datetime", () => new List<DateTime> { new DateTime(2026, 1, 2, 3, 4, 5, DateTimeKind.Utc) } },
                { "list-enum", () => new List<State> { State.Open, State.Paid } },
                { "list-bool", () => new List<bool> { true, false } },
                { "arraylist", () => new ArrayList { 1, "two", 3.0m, null } },
                { "dictionary-string-int", () => new Dictionary<string, int> { { "one", 1 }, { "two", 2 } } },
                { "dictionary-int-class", () => new Dictionary<int, Address> { { 5, new Address { City = "Rome" } } } },
                { "dictionary-string-object", () => new Dictionary<string, object> { { "number", 1 }, { "text", "t" }, { "none", null }, { "list", new List<int> { 9 } } } },
                { "dictionary-guid-string", () => new Dictionary<Guid, string> { { new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff"), "token" } } },
                { "dictionary-empty", () => new Dictionary<string, string>() },
                { "dictionary-ignoring-case", () => new Dictionary<string, string>(StringComparer.OrdinalIgnoreCase) { { "Key", "Value" } } },
                { "dictionary-of-dictionaries", () => new Dictionary<string, Dictionary<string, int>> { { "outer", new Dictionary<string, int> { { "inner", 1 } } } } },
                { "sorteddictionary", () => new SortedDictionary<string, int> { { "b", 2 }, { "a", 1 } } },
                { "sortedlist", () => new SortedList<int, string> { { 2, "two" }, { 1, "one" } } },
                { "hashtable", () => new Hashtable { { 1, "one" }, { 2, "two" } } },
                { "hashset", () => new HashSet<string> { "x", "y", "z" } },
                { "sortedset", () => new SortedSet<int> { 3, 1, 2 } },
                { "queue", () => new Queue<int>(new[] { 1, 2, 3 }) },
                { "queue-untyped", () => new Queue(new object[] { 1, "two" }) },
                { "stack", () => new Stack<string>(new[] { "bottom", "top" }) },
                { "linkedlist", () => new LinkedList<int>(new[] { 1, 2 }) },
                { "bitarray", () => new BitArray(new[] { true, false, true }) },
                { "keyvaluepair", () => new KeyValuePair<string, int>("key", 5) },
                { "tuple", () => Tuple.Create(1, "two", 3.5) },
                { "tuple-eight", () => Tuple.Create(1, 2, 3, 4, 5, 6, 7, "eight") },
                { "valuetuple", () => (1, "two") },
                { "nullable", () => (int?)5 },
            };
        }

        static Dictionary<string, Func<object>> Platform()
        {
            return new Dictionary<string, Func<object>>
            {
                { "exception", () => new InvalidOperationException("nothing to do") },
                { "exception-inner", () => new ApplicationException("outer", new ArgumentNullException("order", "inner")) },
                { "exception-thrown", Thrown },
                { "exception-with-data", () => { var fault = new Exception("with data"); fault.Data["order"] = 4711; return fault; } },
                { "exception-own", () => new Sold("sold out", new TimeoutException("too late")) },
                { "exception-aggregate", () => new AggregateException("several", new Exception("one"), new Exception("two")) },
                { "uri", () => new Uri("http://shop.example/orders?id=1&x=%20y") },
                { "version", () => new Version(1, 2, 3, 4) },
                { "memorystream", () => new MemoryStream(new byte[] { 1, 2, 3 }) },
                { "stringbuilder", () => new Box<StringBuilder> { Value = new StringBuilder("built") } },
                { "type", () => new Box<Type> { Value = typeof(string) } },
                { "cultureinfo", () => CultureInfo.InvariantCulture },
                { "datatable", Table },
                { "datatable-binary", () => { var table = Table(); table.RemotingFormat = SerializationFormat.Binary; return table; } },
                { "dataset", () => { var set = new DataSet("shop"); set.Tables.Add(Table()); return set; } },
                { "dataset-binary", () => { var set = new DataSet("shop") { RemotingFormat = SerializationFormat.Binary }; set.Tables.Add(Table()); return set; } },
                { "delegate", () => new Func<string>(new Dog("Rex", "Rex I").ToString) },
                { "delegate-static", () => new Func<double, double>(Math.Sqrt) },
            };
        }

        static Exception Thrown()
        {
            try
            {
                throw new FormatException("the order has no number");
            }
            catch (FormatException fault)
            {
                return fault;
            }
        }

        static DataTable Table()
        {
            var table = new DataTable("lines");
            table.Columns.Add("article", typeof(string));
            table.Columns.Add("count", typeof(int));
            table.Columns.Add("price", typeof(decimal));
            table.Rows.Add("tea", 2, 3.5m);
            table.Rows.Add("milk", 1, DBNull.Value);
            table.AcceptChanges();
            return table;
        }

        static void Styles()
        {
            var values = new Dictionary<string, Func<object>>
            {
                { "string", () => "hello" }, { "class", Order.Example }, { "list", () => new List<Line> { new Line { Article = "tea" } } },
                { "every-primitive", () => new EveryPrimitive() }, { "generic", () => new Box<Money>() },
            };
            foreach (var value in values)
            {
                Samples.Try("binaryformatter-full/" + value.Key, () => Formatted(
                    value.Value(), new BinaryFormatter { AssemblyFormat = FormatterAssemblyStyle.Full }, "nrbf"));
                // The writer leaves out the types of members: only who has the classes can read them.
                Samples.Try("binaryformatter-types-when-needed/" + value.Key, () => Formatted(
                    value.Value(), new BinaryFormatter { TypeFormat = FormatterTypeStyle.TypesWhenNeeded }, "nrbf|bytes"));
                Samples.Try("binaryformatter-xsd-string/" + value.Key, () => Formatted(
                    value.Value(), new BinaryFormatter { TypeFormat = FormatterTypeStyle.XsdString }, "nrbf|bytes"));
            }
            Samples.Try("binaryformatter-deep/chain-of-200", () => Formatted(Chain(200), new BinaryFormatter(), "nrbf|bytes"));
            Samples.Try("binaryformatter-untyped/class", () => // sent through BodyStream, so without a body type
            {
                var sample = Formatted(Order.Example(), new BinaryFormatter(), "nrbf");
                sample.BodyType = 0;
                sample.Framework = null;
                return sample;
            });
        }
    }
}
