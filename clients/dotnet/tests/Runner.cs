// A small runner: every public method of the test classes is a test. Arguments choose tests by a part of their names.

using System;
using System.Diagnostics;
using System.Linq;
using System.Messaging;
using System.Reflection;

static class Runner
{
    static int Main(string[] wanted)
    {
        var failed = 0;
        var passed = 0;
        foreach (var type in Assembly.GetExecutingAssembly().GetTypes().Where(each => each.Name.EndsWith("Tests")).OrderBy(each => each.Name))
        {
            foreach (var test in type.GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly))
            {
                var name = $"{type.Name}.{test.Name}";
                if (wanted.Length > 0 && !wanted.Any(name.Contains))
                    continue;
                try
                {
                    var running = (System.Threading.Tasks.Task)null;
                    var result = test.Invoke(Activator.CreateInstance(type), null);
                    running = result as System.Threading.Tasks.Task;
                    running?.GetAwaiter().GetResult();
                    passed++;
                }
                catch (Exception fault)
                {
                    failed++;
                    Console.WriteLine($"FAILED {name}\n{(fault as TargetInvocationException)?.InnerException ?? fault}\n");
                }
            }
        }
        Console.WriteLine($"{passed} passed, {failed} failed");
        return failed > 0 || passed == 0 ? 1 : 0;
    }
}

static class Check
{
    public static void Equal<T>(T wanted, T found)
    {
        if (!Equals(wanted, found))
            throw new Exception($"wanted {Shown(wanted)}, found {Shown(found)}");
    }

    public static void Same<T>(T[] wanted, T[] found)
    {
        if (!wanted.SequenceEqual(found))
            throw new Exception($"wanted {string.Join(", ", wanted)}; found {string.Join(", ", found)}");
    }

    public static void True(bool truth, string what = "the condition")
    {
        if (!truth)
            throw new Exception($"{what} is false");
    }

    public static T Throws<T>(Action action)
        where T : Exception
    {
        try
        {
            action();
        }
        catch (T fault)
        {
            return fault;
        }
        throw new Exception($"no {typeof(T).Name} was raised");
    }

    public static void Fails(MessageQueueErrorCode code, Action action)
    {
        Equal(code, Throws<MessageQueueException>(action).MessageQueueErrorCode);
    }

    static string Shown(object value)
    {
        return value == null ? "null" : $"{value} ({value.GetType().Name})";
    }
}

/// <summary>A queue for one test, with a name of its own.</summary>
sealed class Queues : IDisposable
{
    static int made;
    readonly System.Collections.Generic.List<string> paths = new System.Collections.Generic.List<string>();

    public MessageQueue Create(bool transactional = false)
    {
        var path = $@".\private$\test{Process.GetCurrentProcess().Id}_{System.Threading.Interlocked.Increment(ref made)}";
        paths.Add(path);
        var queue = MessageQueue.Create(path, transactional);
        queue.Formatter = new XmlMessageFormatter(new[] { typeof(string) });
        queue.MessageReadPropertyFilter.SetAll();
        return queue;
    }

    public void Dispose()
    {
        foreach (var each in paths.Where(MessageQueue.Exists))
            MessageQueue.Delete(each);
    }
}
