// Arguments: the file to write, and the file with the strings of [MC-NBFS]. On mono `dictionary FILE` writes the latter.
namespace Postroad.Samples
{
    static class Program
    {
        static void Main(string[] arguments)
        {
#if MONO
            if (arguments[0] == "dictionary")
            {
                Platform.WriteDictionary(arguments[1]);
                return;
            }
#endif
            StaticDictionary.Load(arguments[1]);
            XmlSamples.All();
            BinaryFormatterSamples.All();
            BinaryXmlSamples.All();
            WcfSamples.All();
            Platform.All();
            Samples.Write(arguments[0]);
        }
    }
}
