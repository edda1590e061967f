// Messages of NServiceBus, Rebus and MassTransit: headers in the extension, bodies as XML or JSON, in the forms that
// their transports document. The classes are our own; XmlSerializer and Json.NET write them.
using System;
using System.Collections.Generic;
using System.IO;
using System.IO.Compression;
using System.Linq;
using System.Text;
using System.Xml;
using System.Xml.Serialization;
using Newtonsoft.Json;
using Newtonsoft.Json.Serialization;
using Shop;

namespace NServiceBus
{
    /// <summary>The name of the class and of its members is what the extension of a message consists of.</summary>
    public class HeaderInfo
    {
        public string Key { get; set; }
        public string Value { get; set; }
    }
}

namespace Postroad.Samples
{
    static class FrameworkSamples
    {
        const string MessageId = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";

        public static void All()
        {
            NServiceBusMessages();
            NServiceBusExtensions();
            RebusMessages();
            MassTransitMessages();
        }

        // NServiceBus

        static Dictionary<string, string> Headers(string intent, string type, string contentType)
        {
            return new Dictionary<string, string>
            {
                { "NServiceBus.MessageId", MessageId },
                { "NServiceBus.MessageIntent", intent },
                { "NServiceBus.ConversationId", "6d1d8a4e-0b0f-4f4e-9d7f-a830015dd42a" },
                { "NServiceBus.CorrelationId", MessageId },
                { "NServiceBus.ReplyToAddress", "Shop.Sales@WEB01" },
                { "NServiceBus.OriginatingMachine", "WEB01" },
                { "NServiceBus.OriginatingEndpoint", "Shop.Sales" },
                { "$.diagnostics.originating.hostid", "9f2b8b1c7d4e4f6aa1b2c3d4e5f60718" },
                { "NServiceBus.ContentType", contentType },
                { "NServiceBus.EnclosedMessageTypes", type + ", Shop.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null" },
                { "NServiceBus.Version", "7.4.4" },
                { "NServiceBus.TimeSent", "2026-11-19 15:30:00:123456 Z" },
            };
        }

        static Dictionary<string, string> With(Dictionary<string, string> headers, params string[] more)
        {
            for (var index = 0; index < more.Length; index += 2)
                headers[more[index]] = more[index + 1];
            return headers;
        }

        static Dictionary<string, string> Without(Dictionary<string, string> headers, params string[] names)
        {
            return headers.Where(pair => !names.Contains(pair.Key)).ToDictionary(pair => pair.Key, pair => pair.Value);
        }

        static byte[] Extension(Dictionary<string, string> headers)
        {
            var list = headers.Select(pair => new NServiceBus.HeaderInfo { Key = pair.Key, Value = pair.Value }).ToList();
            var output = new MemoryStream();
            using (var writer = XmlWriter.Create(output, new XmlWriterSettings { CheckCharacters = false }))
                new XmlSerializer(typeof(List<NServiceBus.HeaderInfo>)).Serialize(writer, list);
            return output.ToArray();
        }

        /// <summary>The headers as NServiceBus itself reads them: up to the last end tag; a header without a value is "".</summary>
        static Dictionary<string, string> Read(byte[] extension)
        {
            var text = Encoding.UTF8.GetString(extension);
            var end = text.LastIndexOf("</ArrayOfHeaderInfo>", StringComparison.Ordinal) + "</ArrayOfHeaderInfo>".Length;
            var whole = Encoding.UTF8.GetBytes(text.Substring(0, end));
            using (var reader = XmlReader.Create(new MemoryStream(whole), new XmlReaderSettings { CheckCharacters = false }))
                return ((List<NServiceBus.HeaderInfo>)new XmlSerializer(typeof(List<NServiceBus.HeaderInfo>)).Deserialize(reader))
                    .Where(header => header.Key != null).ToDictionary(header => header.Key, header => header.Value ?? "");
        }

        static Sample NServiceBusSample(byte[] body, string kind, byte[] extension, int intent)
        {
            return new Sample
            {
                Writer = "NServiceBus' form, XmlSerializer", Kind = kind, Framework = "nservicebus", Body = body, Extension = extension, AppTag = intent,
                Headers = Read(extension), Contains = Inside(body, kind),
            };
        }

        static IEnumerable<string> Inside(byte[] body, string kind)
        {
            if (kind == "json")
                return Leaves.OfJson(body.Skip(body.Take(3).SequenceEqual(Encoding.UTF8.GetPreamble()) ? 3 : 0).ToArray()).ToList();
            return kind == "xml" ? XmlSamples.Document(body, "").Contains : new string[0];
        }

        /// <summary>One message as the XML serializer of NServiceBus writes it, or several in `Messages` as its old versions do.</summary>
        static byte[] XmlBody(string name, string space, bool wrapped, Dictionary<string, string> members)
        {
            var output = new MemoryStream();
            var settings = new XmlWriterSettings { Encoding = new UTF8Encoding(false), Indent = true, NewLineChars = "\r\n", IndentChars = "" };
            using (var writer = XmlWriter.Create(output, settings))
            {
                writer.WriteStartElement(wrapped ? "Messages" : name, "http://tempuri.net/" + space);
                writer.WriteAttributeString("xmlns", "xsi", null, "http://www.w3.org/2001/XMLSchema-instance");
                writer.WriteAttributeString("xmlns", "xsd", null, "http://www.w3.org/2001/XMLSchema");
                if (wrapped)
                    writer.WriteStartElement(name, "http://tempuri.net/" + space);
                foreach (var member in members)
                    if (member.Value == null)
                    {
                        writer.WriteStartElement(member.Key, "http://tempuri.net/" + space);
                        writer.WriteAttributeString("xsi", "nil", null, "true");
                        writer.WriteEndElement();
                    }
                    else
                        writer.WriteElementString(member.Key, "http://tempuri.net/" + space, member.Value);
            }
            return output.ToArray();
        }

        static byte[] JsonBody(object message)
        {
            return Encoding.UTF8.GetBytes(JsonConvert.SerializeObject(message));
        }

        static void NServiceBusMessages()
        {
            var members = new Dictionary<string, string> { { "OrderId", "4711" }, { "Customer", "Ada & Co" }, { "Total", "129.90" }, { "Note", null } };
            var xml = XmlBody("PlaceOrder", "Shop.Messages", false, members);
            var json = JsonBody(Order.Example());
            const string placed = "Shop.Messages.PlaceOrder", accepted = "Shop.Messages.OrderAccepted";
            var intents = new[] { "Send", "Publish", "Subscribe", "Unsubscribe", "Reply" };
            for (var number = 1; number <= intents.Length; number++)
            {
                var intent = number;
                Samples.Try("nservicebus/xml-" + intents[intent - 1].ToLowerInvariant(), () => NServiceBusSample(xml, "xml", Extension(Headers(intents[intent - 1], placed, "text/xml")), intent));
                Samples.Try("nservicebus/json-" + intents[intent - 1].ToLowerInvariant(), () => NServiceBusSample(json, "json", Extension(Headers(intents[intent - 1], accepted, "application/json")), intent));
            }
            Samples.Try("nservicebus/json-with-bom", () => NServiceBusSample(
                Encoding.UTF8.GetPreamble().Concat(json).ToArray(), "json", Extension(Headers("Send", accepted, "application/json")), 1));
            Samples.Try("nservicebus/json-several-in-array", () => NServiceBusSample(
                JsonBody(new[] { Order.Example(), new Order { Id = 2 } }), "json", Extension(Headers("Send", accepted, "text/json")), 1));
            Samples.Try("nservicebus/json-with-types", () => NServiceBusSample(
                Encoding.UTF8.GetBytes(JsonConvert.SerializeObject(Order.Example(), new JsonSerializerSettings { TypeNameHandling = TypeNameHandling.Auto })),
                "json", Extension(Headers("Send", accepted, "application/json")), 1));
            Samples.Try("nservicebus/xml-wrapped", () => NServiceBusSample(
                XmlBody("PlaceOrder", "Shop.Messages", true, members), "xml", Extension(With(Headers("Send", placed, "text/xml"), "NServiceBus.Version", "3.3.8")), 1));
            Samples.Try("nservicebus/several-types", () => NServiceBusSample(xml, "xml", Extension(With(Headers("Publish", placed, "text/xml"),
                "NServiceBus.EnclosedMessageTypes", "Shop.Messages.OrderAccepted, Shop.Messages;Shop.Messages.IOrderEvent, Shop.Messages")), 2));
            Samples.Try("nservicebus/control-message", () => NServiceBusSample(new byte[0], "text|bytes", Extension(With(
                Without(Headers("Subscribe", placed, "text/xml"), "NServiceBus.EnclosedMessageTypes", "NServiceBus.ContentType"),
                "NServiceBus.ControlMessage", "True", "SubscriptionMessageType", accepted + ", Shop.Messages")), 3));
            Samples.Try("nservicebus/return", () => NServiceBusSample(new byte[0], "text|bytes", Extension(With(
                Headers("Reply", placed, "text/xml"), "NServiceBus.ReturnMessage.ErrorCode", "5")), 5));
            Samples.Try("nservicebus/saga", () => NServiceBusSample(json, "json", Extension(With(Headers("Send", accepted, "application/json"),
                "NServiceBus.OriginatingSagaId", "2a1b3c4d-5e6f-7081-92a3-b4c5d6e7f809", "NServiceBus.OriginatingSagaType", "Shop.Sales.OrderSaga, Shop.Sales",
                "NServiceBus.RelatedTo", "11111111-2222-3333-4444-555555555555")), 1));
            Samples.Try("nservicebus/timeout", () => NServiceBusSample(json, "json", Extension(With(Headers("Send", accepted, "application/json"),
                "NServiceBus.Timeout.Expire", "2026-11-20 15:30:00:000000 Z", "NServiceBus.Timeout.RouteExpiredTimeoutTo", "Shop.Sales@WEB01", "NServiceBus.IsDeferredMessage", "True")), 1));
            Samples.Try("nservicebus/audit", () => NServiceBusSample(json, "json", Extension(With(Headers("Send", accepted, "application/json"),
                "NServiceBus.ProcessingStarted", "2026-11-19 15:30:01:000000 Z", "NServiceBus.ProcessingEnded", "2026-11-19 15:30:01:250000 Z",
                "NServiceBus.ProcessingMachine", "APP01", "NServiceBus.ProcessingEndpoint", "Shop.Billing",
                "$.diagnostics.hostid", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "$.diagnostics.hostdisplayname", "APP01")), 1));
            foreach (var message in new Dictionary<string, byte[]> { { "xml", xml }, { "json", json } })
                Samples.Try("nservicebus/error-" + message.Key, () => NServiceBusSample(message.Value, message.Key, Extension(With(Headers("Send", placed, message.Key == "xml" ? "text/xml" : "application/json"),
                    "NServiceBus.ExceptionInfo.ExceptionType", "System.InvalidOperationException",
                    "NServiceBus.ExceptionInfo.InnerExceptionType", "System.TimeoutException",
                    "NServiceBus.ExceptionInfo.HelpLink", null,
                    "NServiceBus.ExceptionInfo.Message", "The order \"4711\" <cannot> be placed & kept",
                    "NServiceBus.ExceptionInfo.Source", "Shop.Billing",
                    "NServiceBus.ExceptionInfo.StackTrace", "System.InvalidOperationException: The order cannot be placed\r\n ---> System.TimeoutException: too late\r\n   at Shop.Billing.PlaceOrderHandler.Handle(PlaceOrder message) in C:\\src\\Handler.cs:line 42",
                    "NServiceBus.TimeOfFailure", "2026-11-19 15:31:00:654321 Z",
                    "NServiceBus.FailedQ", "Shop.Billing@APP01",
                    "NServiceBus.ProcessingMachine", "APP01", "NServiceBus.ProcessingEndpoint", "Shop.Billing", "NServiceBus.FLRetries", "5", "NServiceBus.Retries", "3")), 1));
        }

        static void NServiceBusExtensions()
        {
            var body = JsonBody(new Address { City = "London" });
            var headers = Headers("Send", "Shop.Messages.Move", "application/json");
            var written = Extension(headers);
            Samples.Try("nservicebus-extension/zeros-after", () => NServiceBusSample(body, "json", Framing.Join(written, new byte[100]), 1));
            Samples.Try("nservicebus-extension/garbage-after", () => NServiceBusSample(body, "json", Framing.Join(written, Encoding.UTF8.GetBytes("der><Value>x</Val\0\u0001")), 1));
            Samples.Try("nservicebus-extension/without-declaration", () =>
            {
                var text = Encoding.UTF8.GetString(written).TrimStart('\uFEFF');
                return NServiceBusSample(body, "json", Encoding.UTF8.GetBytes(text.Substring(text.IndexOf("?>", StringComparison.Ordinal) + 2)), 1);
            });
            Samples.Try("nservicebus-extension/indented-without-bom", () =>
            {
                var output = new MemoryStream();
                new XmlSerializer(typeof(List<NServiceBus.HeaderInfo>)).Serialize(output, headers.Select(pair => new NServiceBus.HeaderInfo { Key = pair.Key, Value = pair.Value }).ToList());
                return NServiceBusSample(body, "json", output.ToArray(), 1);
            });
            Samples.Try("nservicebus-extension/values-missing-and-empty", () => NServiceBusSample(body, "json", Extension(With(
                Headers("Send", "Shop.Messages.Move", "application/json"), "Empty", "", "Missing", null, "Space", " ")), 1));
            Samples.Try("nservicebus-extension/markup-and-unicode", () => NServiceBusSample(body, "json", Extension(With(
                Headers("Send", "Shop.Messages.Move", "application/json"), "Markup", "<a href=\"b\">c & d</a> ]]>", "Unicode", "Grüße, 世界 \U0001F600", "Lines", "one\ntwo\tthree", "Key with <markup>", "x")), 1));
            Samples.Try("nservicebus-extension/control-character", () => NServiceBusSample(body, "json", Extension(With(
                Headers("Send", "Shop.Messages.Move", "application/json"), "NServiceBus.ExceptionInfo.Message", "Can you see \u0019 this?")), 1));
            Samples.Try("nservicebus-extension/long", () => NServiceBusSample(body, "json", Extension(With(
                Headers("Send", "Shop.Messages.Move", "application/json"), "NServiceBus.ExceptionInfo.StackTrace",
                string.Concat(Enumerable.Range(0, 100).Select(line => "   at Shop.Deep.Call" + line + "()\r\n")))), 1));
            Samples.Try("nservicebus-extension/few", () => NServiceBusSample(body, "json", Extension(new Dictionary<string, string>
            {
                { "NServiceBus.EnclosedMessageTypes", "Shop.Messages.Move" }, { "NServiceBus.MessageIntent", "Send" },
            }), 1));
            Samples.Try("nservicebus-extension/intent-in-appspecific", () =>
            {
                var sample = NServiceBusSample(body, "json", Extension(Without(headers, "NServiceBus.MessageIntent")), 2);
                sample.Headers.Add("NServiceBus.MessageIntent", "Publish"); // NServiceBus adds it on receipt
                return sample;
            });
            Samples.Try("nservicebus-extension/own-headers", () => NServiceBusSample(body, "json", Extension(With(
                Headers("Send", "Shop.Messages.Move", "application/json"), "tenant", "north", "CorrId", MessageId + "\\0", "WinIdName", "SHOP\\ada")), 1));
        }

        // Rebus

        static void RebusMessages()
        {
            var types = new JsonSerializerSettings { TypeNameHandling = TypeNameHandling.All };
            var headers = new Dictionary<string, string>
            {
                { "rbs2-intent", "p2p" }, { "rbs2-msg-id", MessageId }, { "rbs2-return-address", "sales@WEB01" },
                { "rbs2-senttime", "2026-11-19T15:30:00.1234567+00:00" }, { "rbs2-sender-address", "sales@WEB01" },
                { "rbs2-msg-type", "Shop.Order, Shop.Messages" }, { "rbs2-corr-id", MessageId }, { "rbs2-corr-seq", "0" },
                { "rbs2-content-type", "application/json;charset=utf-8" },
            };
            var bodies = new Dictionary<string, object>
            {
                { "order", Order.Example() }, { "string", "hello" }, { "list", new List<Line> { new Line { Article = "tea", Count = 1, Price = 2.5m } } },
                { "dictionary", new Dictionary<string, object> { { "a", 1 }, { "b", new Address { City = "Rome" } } } },
            };
            foreach (var body in bodies)
                Samples.Try("rebus/" + body.Key, () => RebusSample(JsonConvert.SerializeObject(body.Value, types), headers, body.Key == "string" ? "json|text" : "json"));
            Samples.Try("rebus/publish", () => RebusSample(JsonConvert.SerializeObject(Order.Example(), types), With(new Dictionary<string, string>(headers), "rbs2-intent", "pub"), "json"));
            Samples.Try("rebus/error", () => RebusSample(JsonConvert.SerializeObject(Order.Example(), types), With(new Dictionary<string, string>(headers),
                "rbs2-error-details", "System.InvalidOperationException: no \"stock\"\r\n   at Shop.Handle() in C:\\src\\x.cs:line 7", "rbs2-source-queue", "billing@APP01"), "json"));
            Samples.Try("rebus/unicode-header", () => RebusSample("{}", With(new Dictionary<string, string>(headers), "tenant", "Köln & \"Bonn\" 世界"), "json"));
            Samples.Try("rebus/gzip", () =>
            {
                var sample = RebusSample(JsonConvert.SerializeObject(Order.Example(), types), With(new Dictionary<string, string>(headers), "rbs2-content-encoding", "gzip"), "json");
                var output = new MemoryStream();
                using (var zip = new GZipStream(output, CompressionLevel.Optimal))
                    zip.Write(sample.Body, 0, sample.Body.Length);
                sample.Body = output.ToArray();
                sample.Kind = "json|bytes";
                return sample;
            });
            Samples.Try("rebus/system-text-json", () => RebusSample(JsonConvert.SerializeObject(Order.Example()), headers, "json"));
        }

        static Sample RebusSample(string body, Dictionary<string, string> headers, string kind)
        {
            var extension = Encoding.UTF8.GetBytes(JsonConvert.SerializeObject(headers));
            var bytes = Encoding.UTF8.GetBytes(body);
            return new Sample
            {
                Writer = "Rebus' form, Json.NET", Kind = kind, Framework = "rebus", Body = bytes, Extension = extension,
                Headers = JsonConvert.DeserializeObject<Dictionary<string, string>>(Encoding.UTF8.GetString(extension)),
                Contains = kind == "json" ? Leaves.OfJson(bytes).ToList() : new List<string> { "hello" },
            };
        }

        // MassTransit

        static void MassTransitMessages()
        {
            var camel = new JsonSerializerSettings { ContractResolver = new CamelCasePropertyNamesContractResolver(), NullValueHandling = NullValueHandling.Ignore };
            var withNulls = new JsonSerializerSettings { ContractResolver = new CamelCasePropertyNamesContractResolver(), Formatting = Newtonsoft.Json.Formatting.Indented };
            Samples.Try("masstransit/envelope", () => MassTransitSample(JsonConvert.SerializeObject(Envelope("urn:message:Shop:Order", Order.Example()), camel), null));
            Samples.Try("masstransit/envelope-indented", () => MassTransitSample(JsonConvert.SerializeObject(Envelope("urn:message:Shop:Order", Order.Example()), withNulls), null));
            Samples.Try("masstransit/fault", () => MassTransitSample(JsonConvert.SerializeObject(Envelope("urn:message:MassTransit:Fault[[Shop:Order]]", new
            {
                FaultId = new Guid("00000000-0000-0000-0000-000000000007"), FaultedMessageId = MessageId, Timestamp = new DateTime(2026, 11, 19, 15, 31, 0, DateTimeKind.Utc),
                Exceptions = new[] { new { ExceptionType = "System.InvalidOperationException", Message = "no stock", StackTrace = "   at Shop.Consume()", Source = "Shop" } },
                Message = new Line { Article = "tea" },
            }), camel), null));
            Samples.Try("masstransit/with-extension", () => MassTransitSample(
                JsonConvert.SerializeObject(Envelope("urn:message:Shop:Order", Order.Example()), camel), "{\"Content-Type\":\"application/vnd.masstransit+json\"}"));
            Samples.Try("masstransit/least", () => MassTransitSample(JsonConvert.SerializeObject(new
            {
                DestinationAddress = "msmq://localhost/orders", MessageType = new[] { "urn:message:Shop:Order" }, Message = new Line { Article = "tea" },
            }, camel), null));
        }

        static object Envelope(string type, object message)
        {
            return new
            {
                MessageId, RequestId = (string)null, CorrelationId = (string)null, ConversationId = "6d1d8a4e-0b0f-4f4e-9d7f-a830015dd42a", InitiatorId = (string)null,
                SourceAddress = "msmq://web01/sales", DestinationAddress = "msmq://app01/billing?durable=true", ResponseAddress = (string)null, FaultAddress = (string)null,
                MessageType = new[] { type }, Message = message, ExpirationTime = (DateTime?)null, SentTime = new DateTime(2026, 11, 19, 15, 30, 0, DateTimeKind.Utc),
                Headers = new Dictionary<string, object> { { "tenant", "north" }, { "attempt", 2 } },
                Host = new { MachineName = "WEB01", ProcessName = "Shop.Sales", ProcessId = 4242, Assembly = "Shop.Sales", AssemblyVersion = "1.0.0.0", FrameworkVersion = "4.0.30319.42000", MassTransitVersion = "3.5.7.1082", OperatingSystemVersion = "Microsoft Windows NT 6.2.9200.0" },
            };
        }

        static Sample MassTransitSample(string body, string extension)
        {
            var bytes = Encoding.UTF8.GetBytes(body);
            return new Sample
            {
                Writer = "MassTransit's form, Json.NET", Kind = "json", Framework = "masstransit", Body = bytes,
                Extension = extension == null ? null : Encoding.UTF8.GetBytes(extension), Contains = Leaves.OfJson(bytes).ToList(),
            };
        }
    }
}
