// Runs the Main of the class that the first argument names.

using System;
using System.Reflection;

static class Choose
{
    static void Main(string[] arguments)
    {
        var main = Assembly.GetExecutingAssembly().GetType("MyProject." + arguments[0]).GetMethod("Main", BindingFlags.Public | BindingFlags.Static);
        main.Invoke(null, null);
    }
}
