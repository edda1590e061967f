// Prints the public and protected members of System.Messaging in an assembly, one a line, for comparisons.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;

static class Members
{
    const BindingFlags All = BindingFlags.Public | BindingFlags.NonPublic | BindingFlags.Instance | BindingFlags.Static | BindingFlags.DeclaredOnly;

    static void Main(string[] arguments)
    {
        foreach (var type in Assembly.LoadFrom(arguments[0]).GetExportedTypes())
        {
            Console.WriteLine($"{type.FullName}: {Kind(type)}");
            foreach (var each in typeof(Delegate).IsAssignableFrom(type) ? new[] { Method(type.GetMethod("Invoke")) } : type.IsEnum ? Values(type) : Listed(type))
                Console.WriteLine($"{type.FullName}: {each}");
        }
    }

    static string Kind(Type type)
    {
        var kind = type.IsEnum ? "enum" : type.IsInterface ? "interface" : typeof(Delegate).IsAssignableFrom(type) ? "delegate" : "class";
        var bases = new[] { type.BaseType }.Concat(type.GetInterfaces()).Where(each => each != null && each.IsPublic);
        return kind == "class" ? $"class {string.Join(", ", bases.Where(each => each != typeof(object) && !each.Name.StartsWith("_")).Select(each => each.Name).Distinct().OrderBy(each => each))}" : kind;
    }

    static IEnumerable<string> Values(Type type)
    {
        return Enum.GetNames(type).Select(each => $"{each} = {Convert.ToInt64(Enum.Parse(type, each))}");
    }

    static IEnumerable<string> Listed(Type type)
    {
        foreach (var each in type.GetFields(All).Where(each => each.IsPublic || each.IsFamily))
            yield return $"{each.FieldType} {each.Name}";
        foreach (var each in type.GetConstructors(All).Where(Seen))
            yield return $"new{Parameters(each)}";
        foreach (var each in type.GetMethods(All).Where(Seen).Where(each => !each.IsSpecialName && each.Name != "Finalize"))
            yield return Method(each);
        foreach (var each in type.GetEvents(All))
            yield return $"event {each.EventHandlerType} {each.Name}";
        foreach (var each in type.GetProperties(All))
        {
            foreach (var accessor in each.GetAccessors(true).Where(Seen))
                yield return $"{each.PropertyType} {each.Name} {(accessor == each.GetGetMethod(true) ? "get" : "set")}";
        }
    }

    static bool Seen(MethodBase method)
    {
        return method.IsPublic || method.IsFamily || method.IsFamilyOrAssembly;
    }

    static string Method(MethodInfo method)
    {
        return $"{(method.IsStatic ? "static " : "")}{method.ReturnType} {method.Name}{Parameters(method)}";
    }

    static string Parameters(MethodBase method)
    {
        return $"({string.Join(", ", method.GetParameters().Select(each => each.ParameterType.ToString()))})";
    }
}
