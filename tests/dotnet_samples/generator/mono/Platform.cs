// What only mono has: System.ServiceModel, System.Messaging and remoting.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Messaging;
using System.Reflection;
using System.Runtime.Remoting.Messaging;
using System.Runtime.Remoting.Proxies;
using System.Runtime.Serialization.Formatters.Binary;
using System.ServiceModel.Channels;
using System.Text;
using System.Xml;
using Shop;
using WcfMessage = System.ServiceModel.Channels.Message;

namespace Postroad.Samples
{
    static class Platform
    {
        public const string Short = "mono";
        public const string Name = "mono 6.8";

        const string Via = "net.msmq://shop.example/private/orders";

        public static void All()
        {
            Messages();
            Remoting();
            Formatters();
        }

        /// <summary>The strings of [MC-NBFS] that mono's WCF has, with what it writes differently from the specification.</summary>
        public static void WriteDictionary(string path)
        {
            var constants = typeof(WcfMessage).Assembly.GetType("System.ServiceModel.Constants");
            var strings = ((string[])constants.GetField("dict_strings", BindingFlags.Static | BindingFlags.NonPublic).GetValue(null)).ToList();
            var spaced = strings.IndexOf("http://schemas.xmlsoap.org/ws/2005/02/trust/tlsnego");
            strings[spaced] = " " + strings[spaced];
            var soap11 = strings.IndexOf("http://schemas.xmlsoap.org/soap/envelope/") + 1;
            for (var index = soap11; index < strings.Count; index++)
                strings[index] = strings[index].ToLowerInvariant();
            File.WriteAllText(path, string.Join("\n", strings), new UTF8Encoding(false));
        }

        // System.ServiceModel

        static void Messages()
        {
            foreach (var version in new Dictionary<string, MessageVersion> { { "soap12", MessageVersion.Soap12WSAddressing10 }, { "soap11", MessageVersion.Soap11 } })
            {
                var called = version.Key;
                Samples.Try("servicemodel/binary-" + called, () => Wcf("Message of System.ServiceModel, binary", output =>
                    XmlDictionaryWriter.CreateBinaryWriter(output, StaticDictionary.Strings), version.Value, Framing.Binary, body => BinaryXml.Text(body)));
                Samples.Try("servicemodel/text-" + called, () => Wcf("Message of System.ServiceModel, text", output =>
                    XmlDictionaryWriter.CreateTextWriter(output, new UTF8Encoding(false)), version.Value, called == "soap12" ? Framing.Soap12Utf8 : Framing.Soap11Utf8, body =>
                    BinaryXml.Text(XmlReader.Create(new MemoryStream(body)))));
            }
        }

        static Sample Wcf(string writer, Func<Stream, XmlDictionaryWriter> create, MessageVersion version, byte encoding, Func<byte[], string> read)
        {
            var output = new MemoryStream();
            using (var message = WcfMessage.CreateMessage(version, "http://shop.example/2026/Put", Order.Example()))
            using (var xml = create(output))
            {
                if (version.Addressing != AddressingVersion.None)
                {
                    message.Headers.To = new Uri(Via);
                    message.Headers.MessageId = new UniqueId(new Guid("6f9619ff-8b86-d011-b42d-00c04fc964ff"));
                }
                message.WriteMessage(xml);
            }
            var text = read(output.ToArray());
            return new Sample
            {
                Writer = writer, Kind = "wcf", Framework = "wcf", Body = Framing.Datagram(Via, encoding, output.ToArray()), Xml = text, Contains = BinaryXml.LeavesOf(text),
            };
        }

        // Remoting

        static void Remoting()
        {
            Samples.Try("remoting/call", () => Call(shop => shop.Place("tea", 2, new Address { City = "Rome" })).Key);
            Samples.Try("remoting/return", () => Call(shop => shop.Place("tea", 2, new Address { City = "Rome" })).Value);
            Samples.Try("remoting/call-without-arguments", () => Call(shop => shop.Ping()).Key);
            Samples.Try("remoting/return-of-nothing", () => Call(shop => shop.Ping()).Value);
            Samples.Try("remoting/call-of-primitives", () => Call(shop => shop.Add(1, 2.5, true)).Key);
            Samples.Try("remoting/return-of-primitive", () => Call(shop => shop.Add(1, 2.5, true)).Value);
            Samples.Try("remoting/return-of-exception", () => Call(shop => shop.Fail("why not")).Value);
            Samples.Try("remoting/headers", () =>
            {
                var output = new MemoryStream();
                new BinaryFormatter().Serialize(output, "with headers", new[] { new Header("tenant", "north"), new Header("attempt", 2) });
                return Binary(output.ToArray(), "nrbf", "with headers");
            });
        }

        public interface IShop
        {
            string Place(string article, int count, Address to);
            void Ping();
            double Add(int whole, double part, bool round);
            void Fail(string why);
        }

        sealed class Recorder : RealProxy
        {
            public IMethodCallMessage Called;
            public IMethodReturnMessage Returned;

            public Recorder() : base(typeof(IShop))
            {
            }

            public override IMessage Invoke(IMessage message)
            {
                Called = (IMethodCallMessage)message;
                object value = Called.MethodName == "Place" ? "placed" : Called.MethodName == "Add" ? (object)3.5 : null;
                Returned = Called.MethodName == "Fail"
                    ? new ReturnMessage(new InvalidOperationException((string)Called.Args[0]), Called)
                    : new ReturnMessage(value, null, 0, null, Called);
                return Returned;
            }
        }

        static KeyValuePair<Sample, Sample> Call(Action<IShop> use)
        {
            var recorder = new Recorder();
            try
            {
                use((IShop)recorder.GetTransparentProxy());
            }
            catch (InvalidOperationException)
            {
            }
            var texts = recorder.Called.Args.SelectMany(Leaves.OfObject).ToList();
            texts.Add(recorder.Called.MethodName);
            var answer = recorder.Returned.Exception == null ? Leaves.OfObject(recorder.Returned.ReturnValue) : Leaves.OfObject(recorder.Returned.Exception);
            return new KeyValuePair<Sample, Sample>(
                Binary(Message(recorder.Called), "nrbf", texts.ToArray()), Binary(Message(recorder.Returned), "nrbf", answer.ToArray()));
        }

        static byte[] Message(IMessage message)
        {
            var output = new MemoryStream();
            new BinaryFormatter().Serialize(output, message);
            return output.ToArray();
        }

        static Sample Binary(byte[] body, string kind, params string[] contains)
        {
            return new Sample
            {
                Writer = "BinaryFormatter of remoting", Body = body, BodyType = Samples.BinaryObject, Kind = kind, Framework = "system.messaging", Contains = contains,
            };
        }

        // System.Messaging

        static void Formatters()
        {
            Samples.Try("system.messaging/binary", () =>
            {
                var body = Formatted(new BinaryMessageFormatter());
                return new Sample { Writer = "BinaryMessageFormatter", Kind = "nrbf", Framework = "system.messaging", BodyType = Samples.BinaryObject, Body = body, Contains = Leaves.OfObject(Order.Example()).ToList() };
            });
            Samples.Try("system.messaging/xml", () =>
            {
                var sample = XmlSamples.Document(Formatted(new XmlMessageFormatter(new[] { typeof(Order) })), "XmlMessageFormatter");
                return sample;
            });
        }

        static byte[] Formatted(IMessageFormatter formatter)
        {
            var message = new System.Messaging.Message();
            formatter.Write(message, Order.Example());
            var body = new MemoryStream();
            message.BodyStream.Position = 0;
            message.BodyStream.CopyTo(body);
            return body.ToArray();
        }
    }
}
