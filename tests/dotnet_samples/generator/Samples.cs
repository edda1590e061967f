// The list of samples, and how it is written: one line of JSON each, read by tests/dotnet_samples/__main__.py.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Text;

namespace Postroad.Samples
{
    /// <summary>A body, and what .NET itself reads back from its bytes.</summary>
    sealed class Sample
    {
        public string Name { get; set; }
        public string Writer { get; set; }
        public string Kind { get; set; }
        public string Framework { get; set; }
        public byte[] Body { get; set; }
        public byte[] Extension { get; set; }
        public int BodyType { get; set; }
        public int AppTag { get; set; }
        public IEnumerable<string> Contains { get; set; } = new string[0];
        public Dictionary<string, string> Headers { get; set; }
        public string Text { get; set; }
        public string Xml { get; set; }
    }

    static class Samples
    {
        public const int BinaryObject = 768; // the body type of BinaryMessageFormatter
        const int MostTexts = 60;
        const int LongestText = 10000;

        static readonly List<Sample> All = new List<Sample>();

        public static void Add(Sample sample)
        {
            sample.Name = Platform.Short + "/" + sample.Name;
            sample.Writer += ", " + Platform.Name;
            if (All.Any(other => other.Name == sample.Name))
                throw new ArgumentException("two samples have the name " + sample.Name);
            All.Add(sample);
        }

        /// <summary>Makes a sample; one that this runtime cannot make is named on the error output.</summary>
        public static void Try(string name, Func<Sample> make)
        {
            Sample made;
            try
            {
                made = make();
            }
            catch (Exception fault) when (!(fault is ArgumentException && fault.Message.StartsWith("two samples")))
            {
                var cause = fault.InnerException ?? fault;
                Console.Error.WriteLine(Platform.Short + "/" + name + ": left out: " + cause.GetType().Name + ": " + cause.Message);
                return;
            }
            made.Name = name;
            Add(made);
        }

        public static void Write(string path)
        {
            using (var output = new StreamWriter(path, false, new UTF8Encoding(false)))
                foreach (var sample in All)
                    output.Write(Line(sample) + "\n");
            Console.Error.WriteLine(Platform.Name + ": " + All.Count + " samples");
        }

        static string Line(Sample sample)
        {
            var fields = new List<string>
            {
                Field("name", Quoted(sample.Name)),
                Field("writer", Quoted(sample.Writer)),
                Field("body_base64", Quoted(Convert.ToBase64String(sample.Body))),
                Field("extension_base64", sample.Extension == null ? "null" : Quoted(Convert.ToBase64String(sample.Extension))),
                Field("body_type", sample.BodyType.ToString(CultureInfo.InvariantCulture)),
                Field("app_tag", sample.AppTag.ToString(CultureInfo.InvariantCulture)),
                Field("kind", Quoted(sample.Kind)),
                Field("system", Quoted(sample.Framework)),
                Field("contains", "[" + string.Join(", ", sample.Contains.Distinct().Take(MostTexts).Select(Quoted)) + "]"),
                Field("headers", sample.Headers == null ? "null" : "{" + string.Join(", ",
                    sample.Headers.Select(pair => Field(pair.Key, Quoted(pair.Value)))) + "}"),
                Field("text", Quoted(Kept(sample.Text))),
                Field("xml", Quoted(Kept(sample.Xml))),
            };
            return "{" + string.Join(", ", fields) + "}";
        }

        static string Kept(string text)
        {
            return text != null && text.Length > LongestText ? null : text;
        }

        static string Field(string name, string json)
        {
            return Quoted(name) + ": " + json;
        }

        static string Quoted(string text)
        {
            if (text == null)
                return "null";
            var quoted = new StringBuilder("\"");
            foreach (var unit in text)
                if (unit < ' ' || unit > '~' || unit == '"' || unit == '\\')
                    quoted.Append("\\u" + ((int)unit).ToString("x4", CultureInfo.InvariantCulture));
                else
                    quoted.Append(unit);
            return quoted.Append('"').ToString();
        }
    }
}
