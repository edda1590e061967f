namespace Postroad.Samples
{
    /// <summary>What only this runtime makes.</summary>
    static class Platform
    {
        public const string Short = "core";
        public const string Name = ".NET Core 3.1";

        public static void All()
        {
            ActiveXSamples.All();
            FrameworkSamples.All();
            TextSamples.All();
            JsonSamples.All();
        }
    }
}
