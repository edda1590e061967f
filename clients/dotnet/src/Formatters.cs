// How objects become bodies, and bodies become objects again.

#if MSMQ_MESSAGING
namespace MSMQ.Messaging
#else
namespace System.Messaging
#endif
{
    using System;
    using System.Collections;
    using System.Collections.Concurrent;
    using System.Collections.Generic;
    using System.IO;
    using System.Runtime.Serialization;
    using System.Runtime.Serialization.Formatters;
    using System.Runtime.Serialization.Formatters.Binary;
    using System.Text;
    using System.Xml;
    using System.Xml.Serialization;

    /// <summary>Writes objects as bodies of messages, and reads them.</summary>
    public interface IMessageFormatter : ICloneable
    {
        bool CanRead(Message message);

        object Read(Message message);

        void Write(Message message, object obj);
    }

    /// <summary>Bodies in XML, by XmlSerializer. Reads the types that it was given.</summary>
    public class XmlMessageFormatter : IMessageFormatter
    {
        static readonly ConcurrentDictionary<Type, XmlSerializer> Serializers = new ConcurrentDictionary<Type, XmlSerializer>();
        Type[] types = Type.EmptyTypes;
        string[] names = Array.Empty<string>();
        Type[] named;

        public XmlMessageFormatter()
        {
        }

        public XmlMessageFormatter(string[] targetTypeNames)
        {
            TargetTypeNames = targetTypeNames;
        }

        public XmlMessageFormatter(Type[] targetTypes)
        {
            TargetTypes = targetTypes;
        }

        public string[] TargetTypeNames
        {
            get => names;
            set
            {
                names = value ?? throw new ArgumentNullException(nameof(value));
                named = null;
            }
        }

        public Type[] TargetTypes
        {
            get => types;
            set => types = value ?? throw new ArgumentNullException(nameof(value));
        }

        public bool CanRead(Message message)
        {
            if (message == null)
                throw new ArgumentNullException(nameof(message));
            return Matching(message) != null;
        }

        public object Read(Message message)
        {
            if (message == null)
                throw new ArgumentNullException(nameof(message));
            var type = Matching(message) ?? throw new InvalidOperationException(
                "Body cannot be read: its XML fits none of the TargetTypes of XmlMessageFormatter");
            using (var reader = Open(message))
                return Of(type).Deserialize(reader);
        }

        public void Write(Message message, object obj)
        {
            if (message == null)
                throw new ArgumentNullException(nameof(message));
            if (obj == null)
                throw new ArgumentNullException(nameof(obj));
            var stream = new MemoryStream();
            Of(obj.GetType()).Serialize(stream, obj);
            message.Written(stream, 0);
        }

        public object Clone()
        {
            return new XmlMessageFormatter { types = types, names = names, named = named };
        }

        Type Matching(Message message)
        {
            if (types.Length == 0 && names.Length == 0)
                throw new InvalidOperationException(
                    "TargetTypes is empty: XmlMessageFormatter needs the types that it may read, in TargetTypes or TargetTypeNames");
            if (named == null)
                named = Array.ConvertAll(names, each => Type.GetType(each, true));
            try
            {
                foreach (var list in new[] { types, named })
                {
                    foreach (var type in list)
                    {
                        using (var reader = Open(message))
                        {
                            if (Of(type).CanDeserialize(reader))
                                return type;
                        }
                    }
                }
            }
            catch (XmlException)
            {
            }
            return null;
        }

        static XmlReader Open(Message message)
        {
            var stream = message.BodyStream;
            stream.Position = 0;
            return XmlReader.Create(stream, new XmlReaderSettings { DtdProcessing = DtdProcessing.Prohibit, XmlResolver = null });
        }

        static XmlSerializer Of(Type type)
        {
            return Serializers.GetOrAdd(type, each => new XmlSerializer(each));
        }
    }

    /// <summary>
    /// Bodies in the format of BinaryFormatter. Such a body can name any class, and making an object of it can run code:
    /// only plain values, collections of them, and the types of <see cref="Allow"/> are read.
    /// </summary>
    public class BinaryMessageFormatter : IMessageFormatter
    {
        const int Binary = 768;

        public BinaryMessageFormatter()
            : this(FormatterAssemblyStyle.Simple, FormatterTypeStyle.TypesAlways)
        {
        }

        public BinaryMessageFormatter(FormatterAssemblyStyle topObjectFormat, FormatterTypeStyle typeFormat)
        {
            TopObjectFormat = topObjectFormat;
            TypeFormat = typeFormat;
        }

        public FormatterAssemblyStyle TopObjectFormat { get; set; }

        public FormatterTypeStyle TypeFormat { get; set; }

        /// <summary>Lets bodies have objects of these classes, enumerations and structures, for the whole process.</summary>
        public static void Allow(params Type[] types)
        {
            foreach (var each in types ?? throw new ArgumentNullException(nameof(types)))
                AllowedTypes.Add(each);
        }

        /// <summary>
        /// Lets bodies have objects of every class, as in System.Messaging: who can write to a queue can then run code in
        /// the process that reads it.
        /// </summary>
        public static bool AllowEveryType { get; set; }

        public bool CanRead(Message message)
        {
            return (message ?? throw new ArgumentNullException(nameof(message))).BodyType == Binary;
        }

        public object Read(Message message)
        {
            if (!CanRead(message))
                throw new InvalidOperationException($"Body cannot be read: its BodyType must be {Binary}, got {message.BodyType}");
            message.BodyStream.Position = 0;
            var reader = new BinaryFormatter { AssemblyFormat = TopObjectFormat, TypeFormat = TypeFormat };
            if (!AllowEveryType)
                reader.Binder = new AllowedTypes();
            return reader.Deserialize(message.BodyStream);
        }

        public void Write(Message message, object obj)
        {
            if (message == null)
                throw new ArgumentNullException(nameof(message));
            var stream = new MemoryStream();
            new BinaryFormatter { AssemblyFormat = TopObjectFormat, TypeFormat = TypeFormat }.Serialize(stream, obj);
            message.Written(stream, Binary);
        }

        public object Clone()
        {
            return new BinaryMessageFormatter(TopObjectFormat, TypeFormat);
        }
    }

    /// <summary>Finds the types that a binary body names among those that are allowed. It never loads an assembly.</summary>
    sealed class AllowedTypes : SerializationBinder
    {
        static readonly ConcurrentDictionary<string, Type> Known = new ConcurrentDictionary<string, Type>();

        static AllowedTypes()
        {
            foreach (var each in new[]
            {
                typeof(object), typeof(string), typeof(bool), typeof(char), typeof(byte), typeof(sbyte), typeof(short),
                typeof(ushort), typeof(int), typeof(uint), typeof(long), typeof(ulong), typeof(float), typeof(double),
                typeof(decimal), typeof(DateTime), typeof(DateTimeOffset), typeof(TimeSpan), typeof(Guid), typeof(Version),
                typeof(Nullable<>), typeof(List<>), typeof(Dictionary<,>), typeof(KeyValuePair<,>), typeof(Queue<>),
                typeof(Stack<>), typeof(Tuple<>), typeof(Tuple<,>), typeof(Tuple<,,>), typeof(ArrayList),
            })
                Add(each);
            // The comparers that dictionaries have, which differ between versions of .NET.
            Add(EqualityComparer<string>.Default.GetType());
            foreach (var name in new[] { "GenericEqualityComparer`1", "ObjectEqualityComparer`1", "EnumEqualityComparer`1", "NonRandomizedStringEqualityComparer" })
            {
                var comparer = typeof(object).Assembly.GetType("System.Collections.Generic." + name);
                if (comparer != null)
                    Add(comparer);
            }
        }

        public static void Add(Type type)
        {
            var plain = type.IsGenericType ? type.GetGenericTypeDefinition() : type;
            Known[plain.FullName] = plain;
        }

        public override Type BindToType(string assemblyName, string typeName)
        {
            var at = 0;
            var type = Read(typeName, ref at);
            return at == typeName.Length ? type : throw Refused(typeName);
        }

        /// <summary>A name such as `List`1[[Shop.Order, Shop]]` or `Shop.Order[]`.</summary>
        static Type Read(string name, ref int at)
        {
            var end = name.IndexOfAny(new[] { '[', ']', ',' }, at);
            if (end < 0)
                end = name.Length;
            var plain = name.Substring(at, end - at);
            if (!Known.TryGetValue(plain, out var type))
                throw Refused(plain);
            at = end;
            if (type.IsGenericTypeDefinition)
            {
                var arguments = new List<Type>();
                Expect(name, ref at, '[');
                do
                {
                    if (arguments.Count > 0)
                        at++;
                    Expect(name, ref at, '[');
                    arguments.Add(Read(name, ref at));
                    var close = name.IndexOf(']', at); // behind the name of the assembly
                    at = close < 0 ? name.Length : close;
                    Expect(name, ref at, ']');
                }
                while (at < name.Length && name[at] == ',');
                Expect(name, ref at, ']');
                if (arguments.Count != type.GetGenericArguments().Length)
                    throw Refused(name);
                type = type.MakeGenericType(arguments.ToArray());
            }
            while (at < name.Length && name[at] == '[')
            {
                var rank = 1;
                while (++at < name.Length && name[at] == ',')
                    rank++;
                Expect(name, ref at, ']');
                type = rank == 1 ? type.MakeArrayType() : type.MakeArrayType(rank);
            }
            return type;
        }

        static void Expect(string name, ref int at, char wanted)
        {
            if (at >= name.Length || name[at] != wanted)
                throw Refused(name);
            at++;
        }

        static SerializationException Refused(string name)
        {
            return new SerializationException(
                $"the body has an object of {name}, which is not allowed: call BinaryMessageFormatter.Allow(typeof({name})) if its senders are trusted");
        }
    }

    /// <summary>One value, as components of COM write it. COM objects themselves exist on Windows only.</summary>
    public class ActiveXMessageFormatter : IMessageFormatter
    {
        const int Vector = 0x1000;

        // VARENUM
        enum Kind
        {
            Empty = 0, Null = 1, Short = 2, Int = 3, Float = 4, Double = 5, Currency = 6, Date = 7, Text = 8, Bool = 11,
            SByte = 16, Byte = 17, UShort = 18, UInt = 19, Long = 20, ULong = 21, Bytes = Vector | Byte, Narrow = 30, Wide = 31,
            Guid = 72,
        }

        public bool CanRead(Message message)
        {
            var type = (message ?? throw new ArgumentNullException(nameof(message))).BodyType;
            return Enum.IsDefined(typeof(Kind), type);
        }

        public object Read(Message message)
        {
            if (!CanRead(message))
                throw new InvalidOperationException(
                    $"Body cannot be read: BodyType {message.BodyType} is no plain value; objects of COM exist on Windows only");
            var stream = new MemoryStream();
            message.BodyStream.Position = 0;
            message.BodyStream.CopyTo(stream);
            var data = stream.ToArray();
            try
            {
                return Read((Kind)message.BodyType, data);
            }
            catch (ArgumentException fault)
            {
                throw new InvalidOperationException($"Body cannot be read: it is too short for BodyType {message.BodyType}", fault);
            }
        }

        static object Read(Kind kind, byte[] data)
        {
            switch (kind)
            {
                case Kind.Empty:
                case Kind.Null:
                    return null;
                case Kind.Short:
                    return BitConverter.ToInt16(data, 0);
                case Kind.Int:
                    return BitConverter.ToInt32(data, 0);
                case Kind.Float:
                    return BitConverter.ToSingle(data, 0);
                case Kind.Double:
                    return BitConverter.ToDouble(data, 0);
                case Kind.Currency:
                    return BitConverter.ToInt64(data, 0) / 10000m;
                case Kind.Date:
                    return DateTime.FromOADate(BitConverter.ToDouble(data, 0));
                case Kind.Text:
                case Kind.Wide:
                    return Encoding.Unicode.GetString(data, 0, data.Length & ~1).TrimEnd('\0');
                case Kind.Narrow:
                    return Encoding.UTF8.GetString(data).TrimEnd('\0');
                case Kind.Bool:
                    return BitConverter.ToInt16(data, 0) != 0;
                case Kind.SByte:
                    return unchecked((sbyte)One(data));
                case Kind.Byte:
                    return One(data);
                case Kind.UShort:
                    return BitConverter.ToUInt16(data, 0);
                case Kind.UInt:
                    return BitConverter.ToUInt32(data, 0);
                case Kind.Long:
                    return BitConverter.ToInt64(data, 0);
                case Kind.ULong:
                    return BitConverter.ToUInt64(data, 0);
                case Kind.Guid:
                    return new Guid(data);
                default:
                    return data;
            }
        }

        public void Write(Message message, object obj)
        {
            if (message == null)
                throw new ArgumentNullException(nameof(message));
            var data = Encode(obj, out var kind);
            message.Written(new MemoryStream(data, 0, data.Length, true, true), (int)kind);
        }

        static byte[] Encode(object obj, out Kind kind)
        {
            switch (obj)
            {
                case null:
                    kind = Kind.Null;
                    return new byte[0];
                case string value:
                    kind = Kind.Text;
                    return Encoding.Unicode.GetBytes(value);
                case char[] value:
                    kind = Kind.Wide;
                    return Encoding.Unicode.GetBytes(value);
                case byte[] value:
                    kind = Kind.Bytes;
                    return value;
                case bool value:
                    kind = Kind.Bool;
                    return BitConverter.GetBytes((short)(value ? -1 : 0));
                case byte value:
                    kind = Kind.Byte;
                    return new[] { value };
                case sbyte value:
                    kind = Kind.SByte;
                    return new[] { unchecked((byte)value) };
                case char value:
                    kind = Kind.UShort;
                    return BitConverter.GetBytes((ushort)value);
                case short value:
                    kind = Kind.Short;
                    return BitConverter.GetBytes(value);
                case ushort value:
                    kind = Kind.UShort;
                    return BitConverter.GetBytes(value);
                case int value:
                    kind = Kind.Int;
                    return BitConverter.GetBytes(value);
                case uint value:
                    kind = Kind.UInt;
                    return BitConverter.GetBytes(value);
                case long value:
                    kind = Kind.Long;
                    return BitConverter.GetBytes(value);
                case ulong value:
                    kind = Kind.ULong;
                    return BitConverter.GetBytes(value);
                case float value:
                    kind = Kind.Float;
                    return BitConverter.GetBytes(value);
                case double value:
                    kind = Kind.Double;
                    return BitConverter.GetBytes(value);
                case decimal value:
                    kind = Kind.Currency;
                    return BitConverter.GetBytes((long)decimal.Round(value * 10000m));
                case DateTime value:
                    kind = Kind.Date;
                    return BitConverter.GetBytes(value.ToOADate());
                case Guid value:
                    kind = Kind.Guid;
                    return value.ToByteArray();
                default:
                    throw new InvalidOperationException(
                        $"ActiveXMessageFormatter cannot write {obj.GetType()}: objects of COM exist on Windows only");
            }
        }

        /// <summary>Exists on Windows only.</summary>
        public static void InitStreamedObject(object streamedObject)
        {
            throw new PlatformNotSupportedException("objects of COM exist on Windows only");
        }

        public object Clone()
        {
            return new ActiveXMessageFormatter();
        }

        static byte One(byte[] data)
        {
            return data.Length > 0 ? data[0] : throw new ArgumentException("the body is empty");
        }
    }
}
