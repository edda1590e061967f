// The classes of the messages: an application as it could be.
using System;
using System.Collections;
using System.Collections.Generic;
using System.Runtime.Serialization;
using System.Xml.Serialization;

namespace Shop
{
    public enum State { Open, Paid = 10, Shipped = 20 }

    [Flags]
    public enum Rights : byte { None = 0, Read = 1, Write = 2, All = 0xFF }

    public enum Distance : long { Near = -1, Far = long.MaxValue }

    public enum Weight : ulong { Light, Heavy = ulong.MaxValue }

    [Serializable]
    [DataContract(Namespace = "http://shop.example/2026")]
    public class Order
    {
        [DataMember(Order = 1)] public int Id { get; set; }
        [DataMember(Order = 2)] public string Customer { get; set; }
        [DataMember(Order = 3)] public decimal Total { get; set; }
        [DataMember(Order = 4)] public DateTime Placed { get; set; }
        [DataMember(Order = 5)] public Guid Token { get; set; }
        [DataMember(Order = 6)] public State State { get; set; }
        [DataMember(Order = 7)] public int? Rebate { get; set; }
        [DataMember(Order = 8)] public bool Gift { get; set; }
        [DataMember(Order = 9)] public Address ShipTo { get; set; }
        [DataMember(Order = 10)] public List<Line> Lines { get; set; }
        [DataMember(Order = 11)] public byte[] Signature { get; set; }

        public static Order Example()
        {
            return new Order
            {
                Id = 4711, Customer = "Ada Lovelace", Total = 129.90m, Placed = new DateTime(2026, 3, 14, 15, 9, 26, DateTimeKind.Utc),
                Token = new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff"), State = State.Paid, Rebate = null, Gift = true,
                ShipTo = new Address { Street = "St. James's Square 12", City = "London", Country = "GB" },
                Lines = new List<Line>
                {
                    new Line { Article = "Engine, analytical", Count = 1, Price = 99.95m },
                    new Line { Article = "Punched cards", Count = 1000, Price = 0.02995m },
                },
                Signature = new byte[] { 0xDE, 0xAD, 0xBE, 0xEF },
            };
        }
    }

    [Serializable]
    [DataContract(Namespace = "http://shop.example/2026")]
    public class Address
    {
        [DataMember] public string Street;
        [DataMember] public string City;
        [DataMember] public string Country;
    }

    [Serializable]
    [DataContract(Namespace = "http://shop.example/2026")]
    public class Line
    {
        [DataMember] public string Article;
        [DataMember] public int Count;
        [DataMember] public decimal Price;
    }

    [Serializable]
    public struct Money
    {
        public decimal Amount;
        public string Currency;
    }

    [Serializable]
    public struct Point
    {
        public int X, Y;
    }

    [Serializable]
    public class Animal
    {
        readonly string name;
        protected int legs = 4;

        public Animal(string name)
        {
            this.name = name;
        }

        public override string ToString()
        {
            return name + legs;
        }
    }

    [Serializable]
    public class Dog : Animal
    {
        readonly string name; // a private field of the same name as that of the base
        [NonSerialized] public int Barks = 99;

        public Dog(string name, string registered) : base(registered)
        {
            this.name = name;
        }

        public override string ToString()
        {
            return name;
        }
    }

    [Serializable]
    public sealed class Puppy : Dog
    {
        public double AgeYears = 0.25;

        public Puppy() : base("Bello", "Bello of the Hill")
        {
        }
    }

    [Serializable]
    public class Node
    {
        public string Name;
        public Node Next;
        public Node[] Others;
        public object Anything;
    }

    [Serializable]
    public class Box<T>
    {
        public T Value;
        public string Label = "box";
    }

    [Serializable]
    public class Pair<TFirst, TSecond>
    {
        public TFirst First;
        public TSecond Second;
    }

    [Serializable]
    public class Outer
    {
        public Inner Part = new Inner();

        [Serializable]
        public class Inner
        {
            public int Depth = 2;
            public string Kind = "inner";
        }
    }

    [Serializable]
    public class Empty
    {
    }

    [Serializable]
    public class EveryPrimitive
    {
        public bool Truth = true;
        public byte Small = 200;
        public sbyte Signed = -100;
        public short Short = -30000;
        public ushort Unsigned = 60000;
        public int Whole = -2000000000;
        public uint WholeUnsigned = 4000000000;
        public long Long = -9000000000000000000;
        public ulong LongUnsigned = 18000000000000000000;
        public float Single = 1.5f;
        public double Double = 2.718281828459045;
        public decimal Decimal = 79228162514264337593543950335m;
        public char Letter = 'Ä';
        public DateTime Moment = new DateTime(2026, 11, 19, 15, 30, 0, 123).AddTicks(4567);
        public TimeSpan Span = new TimeSpan(1, 2, 3, 4, 500);
        public Guid Token = new Guid("00112233-4455-6677-8899-aabbccddeeff");
        public State State = State.Shipped;
        public string Text = "text";
    }

    [Serializable]
    public class Boxed
    {
        public object Number = 42;
        public object Text = "a string";
        public object Moment = new DateTime(2000, 1, 1, 0, 0, 0, DateTimeKind.Utc);
        public object State = Shop.State.Paid;
        public object Money = new Money { Amount = 9.99m, Currency = "EUR" };
        public object Numbers = new[] { 1, 2, 3 };
        public object Nothing = null;
        public object Letter = 'x';
        public object Span = TimeSpan.FromSeconds(90);
        public object Amount = 12.50m;
    }

    [Serializable]
    public class Nullables
    {
        public int? Some = 5;
        public int? None = null;
        public DateTime? When = new DateTime(2026, 1, 2, 3, 4, 5);
        public Money? Price = new Money { Amount = 1m, Currency = "USD" };
        public State? State = null;
    }

    [Serializable]
    public class Wide
    {
        public int F00, F01, F02, F03, F04, F05, F06, F07, F08, F09, F10, F11, F12, F13, F14, F15, F16, F17, F18, F19;
        public string S00, S01, S02, S03, S04, S05, S06, S07, S08, S09, S10, S11, S12, S13, S14, S15, S16, S17, S18 = "last", S19;
        public bool B00, B01 = true, B02, B03, B04 = true, B05;
    }

    [Serializable]
    public sealed class Own : ISerializable
    {
        readonly int number;
        readonly string text;
        readonly Animal animal;

        public Own(int number, string text, Animal animal)
        {
            this.number = number;
            this.text = text;
            this.animal = animal;
        }

        Own(SerializationInfo info, StreamingContext context)
        {
            number = info.GetInt32("the number");
            text = info.GetString("the text");
            animal = (Animal)info.GetValue("animal", typeof(Animal));
        }

        public void GetObjectData(SerializationInfo info, StreamingContext context)
        {
            info.AddValue("the number", number);
            info.AddValue("the text", text);
            info.AddValue("animal", animal, typeof(Animal));
            info.AddValue("at", new DateTime(2026, 5, 6, 7, 8, 9));
            info.AddValue("price", 3.25m);
        }
    }

    [Serializable]
    public sealed class Sold : Exception
    {
        public Sold(string message, Exception inner) : base(message, inner)
        {
        }

        Sold(SerializationInfo info, StreamingContext context) : base(info, context)
        {
        }
    }

    [Serializable]
    public class Names : List<string>
    {
    }

    [Serializable]
    public class Prices : Dictionary<string, decimal>
    {
        public Prices()
        {
        }

        protected Prices(SerializationInfo info, StreamingContext context) : base(info, context)
        {
        }
    }

    // What XmlSerializer can be told.

    [XmlRoot("invoice", Namespace = "http://shop.example/invoice")]
    public class Invoice
    {
        [XmlAttribute("number")] public int Number = 2026001;
        [XmlAttribute("issued", DataType = "date")] public DateTime Issued = new DateTime(2026, 2, 3);
        [XmlAttribute(Namespace = "http://shop.example/other")] public string Note = "a & b < c \"quoted\"";
        [XmlElement("line")] public Line[] Lines = { new Line { Article = "Tea", Count = 2, Price = 3.5m } };
        [XmlElement(IsNullable = true)] public string Missing;
        [XmlText] public string Text = "mixed text";
        [XmlIgnore] public string Hidden = "not here";
    }

    public class Choice
    {
        [XmlElement("number", typeof(int)), XmlElement("text", typeof(string)), XmlElement("line", typeof(Line))]
        public object[] Items = { 1, "two", new Line { Article = "three", Count = 3, Price = 3m } };
    }

    [XmlInclude(typeof(Circle)), XmlInclude(typeof(Square))]
    public abstract class Shape
    {
        public string Name;
    }

    public class Circle : Shape
    {
        public double Radius = 1.25;
    }

    public class Square : Shape
    {
        public double Side = 2.5;
    }

    public class Drawing
    {
        [XmlArray("shapes"), XmlArrayItem("circle", typeof(Circle)), XmlArrayItem("square", typeof(Square))]
        public List<Shape> Shapes = new List<Shape> { new Circle { Name = "sun" }, new Square { Name = "house" } };
    }

    public class EveryXsd
    {
        public bool Truth = true;
        public byte Small = 255;
        public sbyte Signed = -128;
        public short Short = short.MinValue;
        public ushort Unsigned = ushort.MaxValue;
        public int Whole = int.MinValue;
        public uint WholeUnsigned = uint.MaxValue;
        public long Long = long.MinValue;
        public ulong LongUnsigned = ulong.MaxValue;
        public float Single = 1.5f;
        public double Double = -1e100;
        public double NotANumber = double.NaN;
        public double Endless = double.PositiveInfinity;
        public decimal Decimal = -0.0000001m;
        public char Letter = 'Z';
        public DateTime Local = new DateTime(2026, 3, 4, 5, 6, 7, DateTimeKind.Unspecified);
        public DateTime Utc = new DateTime(2026, 3, 4, 5, 6, 7, 89, DateTimeKind.Utc);
        public Guid Token = new Guid("12345678-90ab-cdef-1234-567890abcdef");
        public byte[] Raw = { 0, 1, 2, 253, 254, 255 };
        [XmlElement(DataType = "hexBinary")] public byte[] Hex = { 0xCA, 0xFE };
        public State State = State.Shipped;
        public Rights Rights = Rights.Read | Rights.Write;
        public int? None;
        public int? Some = 3;
        public string Nothing;
        public string Nil = "";
    }
}
