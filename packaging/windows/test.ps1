<#
.SYNOPSIS
    Exchanges messages of every kind between this computer's Message Queuing and a Postroad, and writes what each side
    saw to one file. `postroad kit check FILE` reads it.

.DESCRIPTION
    Creates queues on both sides whose names start with a prefix of this run, and removes them at the end. It reads,
    purges and deletes no other queue. What is not installed here is skipped, and the file says why.

.PARAMETER Postroad
    The name or address of the computer with Postroad, as this computer reaches it.

.PARAMETER Api
    The address of Postroad's HTTP API. Without it: http://POSTROAD:8180.

.PARAMETER Token
    The API's token. Without it: the environment variable POSTROAD_TOKEN.

.PARAMETER Address
    The name or address of this computer, as Postroad reaches it. Without it: the address that connects to Postroad.

.PARAMETER Output
    The result file. It must not exist. Packet captures go beside it.

.PARAMETER Multicast
    A multicast address and port that both sides may use, such as 234.77.77.1:7777. Without it multicast is skipped.

.PARAMETER Directory
    Postroad is in the Active Directory of this computer, so that names of the directory lead to it.

.PARAMETER Interactive
    Somebody sits here, and at Postroad, who can run a command when the script asks for it.

.PARAMETER NoCapture
    Record no packets. Recording needs an administrator.

.PARAMETER Only
    The names of the steps to run. All others are skipped.

.EXAMPLE
    powershell -ExecutionPolicy Bypass -File test.ps1 -Postroad 10.0.0.5 -Token 0123456789abcdef
#>
[CmdletBinding()]
param(
    [Parameter(Mandatory = $true)] [string] $Postroad,
    [string] $Api = '',
    [string] $Token = $env:POSTROAD_TOKEN,
    [string] $Address = '',
    [string] $Output = 'result.json',
    [string] $Multicast = '',
    [switch] $Directory,
    [switch] $Interactive,
    [switch] $NoCapture,
    [string[]] $Only = @()
)

if ($PSVersionTable.PSEdition -eq 'Core') {
    if (-not $IsWindows) {
        [Console]::Error.WriteLine('This script runs on Windows, beside Message Queuing.')
        exit 2
    }
    # System.Messaging is a part of .NET Framework, so the work is done by Windows PowerShell. The token stays off the
    # command line, where other users could see it.
    $env:POSTROAD_TOKEN = $Token
    $arguments = @('-NoProfile', '-ExecutionPolicy', 'Bypass', '-File', $PSCommandPath, '-Postroad', $Postroad, '-Output', $Output)
    if ($Api) { $arguments += @('-Api', $Api) }
    if ($Address) { $arguments += @('-Address', $Address) }
    if ($Multicast) { $arguments += @('-Multicast', $Multicast) }
    if ($Only.Count -gt 0) { $arguments += @('-Only', ($Only -join ',')) }
    foreach ($name in 'Directory', 'Interactive', 'NoCapture') {
        if ($PSBoundParameters.ContainsKey($name) -and $PSBoundParameters[$name]) { $arguments += "-$name" }
    }
    & (Join-Path $env:SystemRoot 'System32\WindowsPowerShell\v1.0\powershell.exe') @arguments
    exit $LASTEXITCODE
}

. (Join-Path $PSScriptRoot 'common.ps1')

$Version = 1 # of the result file
$Patience = New-Object System.TimeSpan(0, 0, 60)
$LargeSize = 3145728
$Prefix = 'postroad-kit-' + [System.Guid]::NewGuid().ToString('N').Substring(0, 8)
$Only = @($Only | ForEach-Object { $_ -split ',' } | Where-Object { $_ })
$Steps = New-Object System.Collections.ArrayList
$Facts = New-Object System.Collections.ArrayList
$LocalQueues = New-Object System.Collections.ArrayList
$PostroadQueues = New-Object System.Collections.ArrayList
$Captures = New-Object System.Collections.ArrayList
$Workgroup = $true
$Features = @()

# The words of Postroad for the classes of acknowledgments, MS-MQMQ 2.2.18.1.6.
$ClassNames = @{
    2 = 'ack-reach-queue'; 16384 = 'ack-receive'; 32770 = 'nack-reach-queue-timeout'; 49152 = 'nack-q-deleted'
    49153 = 'nack-q-purged'; 49154 = 'nack-receive-timeout'
}

# Steps and facts

function Skip-Step([string] $Reason) {
    throw (New-Object System.OperationCanceledException $Reason)
}

function Add-Fact([string] $Name, $Windows, $Postroad) {
    # One thing as Windows and as Postroad know it. The table that the step prints is what to compare.
    $fact = New-Object System.Collections.Specialized.OrderedDictionary
    $fact['name'] = $Name
    $fact['windows'] = $Windows
    $fact['postroad'] = $Postroad
    [void] $Facts.Add($fact)
}

function ConvertTo-Shown($Value) {
    if ($null -eq $Value) { return '-' }
    $text = (@($Value) -join ' | ')
    if ($text.Length -gt 60) { return $text.Substring(0, 57) + '...' }
    return $text
}

function Invoke-Step([string] $Name, [string] $What, [scriptblock] $Work) {
    # Runs a step and keeps its facts. A fault ends the step and not the script.
    $Facts.Clear()
    $state = 'done'
    $reason = ''
    Write-Host ''
    Write-Host "$Name`: $What"
    try {
        if ($Only.Count -gt 0 -and $Only -notcontains $Name) { Skip-Step 'not asked for, by -Only' }
        & $Work
    }
    catch [System.OperationCanceledException] {
        $state = 'skipped'
        $reason = $_.Exception.Message
    }
    catch {
        $state = 'failed'
        $reason = ConvertTo-Reason $_
    }
    foreach ($fact in $Facts) {
        $sign = '<>'
        if ((ConvertTo-Shown $fact['windows']) -ieq (ConvertTo-Shown $fact['postroad'])) { $sign = '=' }
        Write-Host ('    {0,-16} {1} {2} {3}' -f $fact['name'], (ConvertTo-Shown $fact['windows']), $sign, (ConvertTo-Shown $fact['postroad']))
    }
    if ($state -ne 'done') { Write-Host "    $state`: $reason" }
    $step = New-Object System.Collections.Specialized.OrderedDictionary
    $step['name'] = $Name
    $step['state'] = $state
    $step['reason'] = $reason
    $step['facts'] = $Facts.ToArray()
    [void] $Steps.Add($step)
}

function ConvertTo-Reason($Fault) {
    $text = $Fault.Exception.Message
    $inner = $Fault.Exception.GetBaseException()
    if ($inner -is [System.Messaging.MessageQueueException]) {
        $text = '{0} ({1}, 0x{2:X8})' -f $inner.Message, $inner.MessageQueueErrorCode, [int] $inner.MessageQueueErrorCode
    }
    elseif ($inner -is [System.Runtime.InteropServices.COMException]) {
        $text = '{0} (0x{1:X8})' -f $inner.Message, $inner.ErrorCode
    }
    return "$text, at line $($Fault.InvocationInfo.ScriptLineNumber)"
}

# Postroad's side, by its HTTP API

function Invoke-Api([string] $Method, [string] $Path, $Value = $null, [byte[]] $Bytes = $null) {
    # The text of an answer. An error has Postroad's sentence. Not by Invoke-WebRequest: in Windows PowerShell it changes
    # %5C and %2F in a path, which names of queues need, and reads JSON in a wrong encoding.
    $head = "$Method /api/v1$Path HTTP/1.0`r`nHost: $($ApiAddress.Authority)`r`n"
    if ($Token) { $head += "Authorization: Bearer $Token`r`n" }
    if ($null -ne $Value) {
        $Bytes = [System.Text.Encoding]::UTF8.GetBytes((ConvertTo-Json -InputObject $Value -Depth 6 -Compress))
        $head += "Content-Type: application/json`r`n"
    }
    elseif ($null -ne $Bytes) {
        $head += "Content-Type: application/octet-stream`r`n"
    }
    if ($null -eq $Bytes) { $Bytes = New-Object byte[] 0 }
    $head = [System.Text.Encoding]::ASCII.GetBytes("${head}Content-Length: $($Bytes.Length)`r`n`r`n")
    $answer = New-Object System.IO.MemoryStream
    $client = New-Object System.Net.Sockets.TcpClient($ApiAddress.Host, $ApiAddress.Port)
    try {
        $client.ReceiveTimeout = 180000
        $stream = $client.GetStream()
        if ($ApiAddress.Scheme -eq 'https') {
            $stream = New-Object System.Net.Security.SslStream($stream)
            $stream.AuthenticateAsClient($ApiAddress.Host, $null, [System.Security.Authentication.SslProtocols]::Tls12, $true)
        }
        $stream.Write($head, 0, $head.Length)
        $stream.Write($Bytes, 0, $Bytes.Length)
        $stream.Flush()
        $stream.CopyTo($answer)
    }
    finally {
        $client.Close()
    }
    $data = $answer.ToArray()
    $text = [System.Text.Encoding]::GetEncoding(28591).GetString($data) # a character for each byte
    $end = $text.IndexOf("`r`n`r`n")
    $status = [regex]::Match($text, '^HTTP/1\.\d (\d+)')
    if ($end -lt 0 -or -not $status.Success) { throw "Postroad's API: $Method $Path`: this is no HTTP answer" }
    $said = [System.Text.Encoding]::UTF8.GetString($data, $end + 4, $data.Length - $end - 4)
    if ([int] $status.Groups[1].Value -ge 400) { throw "Postroad's API: $Method $Path`: $($status.Groups[1].Value) $said" }
    return $said
}

function Get-FromApi([string] $Path) {
    return (ConvertFrom-Json (Invoke-Api 'GET' $Path))
}

function Get-QueuePath([string] $Name) {
    return '/queues/' + [System.Uri]::EscapeDataString($Name)
}

function New-PostroadQueue([string] $Name, [hashtable] $Properties = @{}) {
    $path = "private`$\$Prefix-$Name"
    [void] (Invoke-Api 'POST' '/queues' (@{ path = $path } + $Properties))
    [void] $PostroadQueues.Add($path)
    # Readers from this computer are strangers to Postroad: let everybody use the queues of the test.
    foreach ($who in 'everyone', 'anonymous') {
        $rights = @('write', 'peek', 'receive', 'get-properties')
        [void] (Invoke-Api 'POST' ((Get-QueuePath $path) + '/acl') @{ grant = @{ who = $who; rights = $rights } })
    }
}

function Get-OwnPostroadQueue([string] $Name) {
    $path = "private`$\$Prefix-$Name"
    if (-not $PostroadQueues.Contains($path)) { throw "$path is not a queue of this test" }
    return $path
}

function Send-FromPostroad([string] $To, [hashtable] $Message) {
    # The id of the message.
    $answer = ConvertFrom-Json (Invoke-Api 'POST' ((Get-QueuePath $To) + '/messages') $Message)
    return [string] @($answer.ids)[0]
}

function Receive-AtPostroad([string] $Name, [string] $Label, [int] $Seconds = 60) {
    # The message with this label. Earlier ones in this queue of the test are left over from steps that failed.
    $path = (Get-QueuePath (Get-OwnPostroadQueue $Name)) + "/receive?count=1&timeout=$Seconds"
    while ($true) {
        $text = Invoke-Api 'POST' $path
        if (-not $text) { throw "no message labelled '$Label' came to Postroad's queue $Name within $Seconds s" }
        $message = @((ConvertFrom-Json $text).messages)[0]
        if ($message.label -ceq $Label) { return $message }
    }
}

# This computer's side, by System.Messaging

function Get-OwnLocalPath([string] $Name) {
    return ".\private`$\$Prefix-$Name"
}

function New-LocalQueue([string] $Name, [bool] $Transactional = $false) {
    $path = Get-OwnLocalPath $Name
    $queue = [System.Messaging.MessageQueue]::Create($path, $Transactional)
    [void] $LocalQueues.Add($path)
    # Messages of Postroad are not signed. The names of these accounts depend on the language, their SIDs do not.
    foreach ($sid in 'S-1-1-0', 'S-1-5-7') {
        $account = (New-Object System.Security.Principal.SecurityIdentifier($sid)).Translate([System.Security.Principal.NTAccount])
        $queue.SetPermissions($account.Value, [System.Messaging.MessageQueueAccessRights]::WriteMessage)
    }
    $queue.MessageReadPropertyFilter.SetAll()
    return $queue
}

function Open-LocalQueue([string] $Name) {
    $path = Get-OwnLocalPath $Name
    if (-not $LocalQueues.Contains($path)) { throw "$path is not a queue of this test" }
    $queue = New-Object System.Messaging.MessageQueue($path)
    $queue.MessageReadPropertyFilter.SetAll()
    return $queue
}

function Open-QueueByName([string] $FormatName) {
    $queue = New-Object System.Messaging.MessageQueue("FormatName:$FormatName")
    $queue.MessageReadPropertyFilter.SetAll()
    return $queue
}

function Get-PostroadName([string] $Name) {
    return "DIRECT=$(ConvertTo-Host $Postroad)\private`$\$Prefix-$Name"
}

function Get-WindowsName([string] $Name) {
    return "DIRECT=$(ConvertTo-Host $Address)\private`$\$Prefix-$Name"
}

function ConvertTo-Host([string] $Name) {
    $found = $null
    if ([System.Net.IPAddress]::TryParse($Name, [ref] $found)) { return "TCP:$Name" }
    return "OS:$Name"
}

function ConvertTo-Id([string] $Id) {
    # 'GUID\NUMBER' of System.Messaging as '{GUID}\NUMBER'.
    return '{' + $Id.Replace('\', '}\')
}

function New-WindowsMessage([string] $Label, [bool] $Recoverable = $false) {
    # A message in which every property that travels has a value of its own.
    $message = New-Object System.Messaging.Message
    $message.Label = $Label
    $message.BodyStream = New-Object System.IO.MemoryStream(, [System.Text.Encoding]::Unicode.GetBytes("body of $Label"))
    $message.BodyType = 8
    $message.Priority = [System.Messaging.MessagePriority] 5
    $message.Recoverable = $Recoverable
    $message.AppSpecific = 4711
    $message.CorrelationId = '01234567-89ab-cdef-0123-456789abcdef\99'
    $message.Extension = [System.Text.Encoding]::ASCII.GetBytes("extension of $Label")
    $message.ResponseQueue = Open-QueueByName (Get-WindowsName 'back')
    return $message
}

function Read-Body($Message) {
    $copy = New-Object System.IO.MemoryStream
    $Message.BodyStream.Position = 0
    $Message.BodyStream.CopyTo($copy)
    return , $copy.ToArray()
}

function Receive-AtWindows([string] $Name, [string] $Label) {
    $queue = Open-LocalQueue $Name
    while ($true) {
        $message = $queue.Receive($Patience)
        if ($message.Label -ceq $Label) { return $message }
    }
}

function Add-MessageFacts($Windows, $Postroad) {
    # Every property that travels, of one message on both sides.
    Add-Fact 'id' (ConvertTo-Id $Windows.Id) $Postroad.id
    Add-Fact 'label' $Windows.Label $Postroad.label
    Add-Fact 'body' ([System.Text.Encoding]::Unicode.GetString((Read-Body $Windows))) $Postroad.body
    Add-Fact 'body_type' ([int] $Windows.BodyType) $Postroad.body_type
    Add-Fact 'priority' ([int] $Windows.Priority) $Postroad.priority
    $delivery = 'express'
    if ($Windows.Recoverable) { $delivery = 'recoverable' }
    Add-Fact 'delivery' $delivery $Postroad.delivery
    Add-Fact 'app_tag' ([int] $Windows.AppSpecific) $Postroad.app_tag
    Add-Fact 'correlation_id' (ConvertTo-Id $Windows.CorrelationId) $Postroad.correlation_id
    Add-Fact 'extension' ([System.Convert]::ToBase64String($Windows.Extension)) $Postroad.extension_base64
    Add-Fact 'response_queue' $Windows.ResponseQueue.FormatName $Postroad.response_queue
}

function Get-AskedMessage([string] $Label, [bool] $Recoverable) {
    # What Postroad is asked to send, under the names of its API.
    return @{
        label = $Label; body = "body of $Label"; body_type = 8; priority = 5; recoverable = $Recoverable; app_tag = 4711
        correlation_id = '{01234567-89ab-cdef-0123-456789abcdef}\99'; response_queue = (Get-PostroadName 'back')
        extension_base64 = [System.Convert]::ToBase64String([System.Text.Encoding]::ASCII.GetBytes("extension of $Label"))
    }
}

function Receive-Acknowledgments([int] $Count) {
    # The acknowledgments in the queue for them here, in the order of arrival.
    $queue = Open-LocalQueue 'acks'
    for ($number = 0; $number -lt $Count; $number++) { $queue.Receive($Patience) }
}

function Get-Hash([byte[]] $Data) {
    $algorithm = [System.Security.Cryptography.SHA256]::Create()
    return ([System.BitConverter]::ToString($algorithm.ComputeHash($Data)) -replace '-', '').ToLowerInvariant()
}

function New-LargeBody {
    $data = New-Object byte[] $LargeSize
    (New-Object System.Random 4711).NextBytes($data)
    return , $data
}

function Assert-Feature([string] $Name) {
    if ($Features -notcontains $Name) {
        Skip-Step "$Name is not installed; as an administrator: Enable-WindowsOptionalFeature -Online -FeatureName $Name"
    }
}

function Assert-Domain([string] $What) {
    if ($Workgroup) { Skip-Step "$What needs Active Directory, and this computer's Message Queuing is in a workgroup" }
}

# Packets

function Start-Capture {
    if ($NoCapture) { return '' }
    if (-not (Test-IsElevated)) {
        Write-Warning 'No packets are recorded: you are not an administrator.'
        return ''
    }
    $trace = [System.IO.Path]::ChangeExtension($ResultFile, '.etl')
    if (Test-Path -LiteralPath $trace) {
        Write-Warning "No packets are recorded: $trace exists already."
        return ''
    }
    if (Get-Command 'pktmon.exe' -ErrorAction SilentlyContinue) {
        # Filters belong to the computer and can only be removed together, so those of somebody else keep pktmon out.
        $listed = (& pktmon.exe filter list | Out-String)
        if ($listed -notmatch '(?m)^\s*\d+\s') {
            foreach ($port in 1801, 3527, 80, 135, 2103, 2105) { & pktmon.exe filter add "PostroadKit$port" -p $port | Out-Null }
            & pktmon.exe start --capture --pkt-size 0 --file-name $trace | Out-Null
            if ($LASTEXITCODE -eq 0) { return 'pktmon' }
            & pktmon.exe filter remove | Out-Null
        }
    }
    & netsh.exe trace start capture=yes "tracefile=$trace" maxsize=250 overwrite=no report=disabled | Out-Null
    if ($LASTEXITCODE -eq 0) { return 'netsh' }
    Write-Warning 'No packets are recorded: neither pktmon nor netsh trace could be started.'
    return ''
}

function Stop-Capture([string] $By) {
    $trace = [System.IO.Path]::ChangeExtension($ResultFile, '.etl')
    $file = [System.IO.Path]::ChangeExtension($ResultFile, '.pcapng')
    if ($By -eq 'pktmon') {
        & pktmon.exe stop | Out-Null
        & pktmon.exe filter remove | Out-Null
        & pktmon.exe etl2pcap $trace --out $file | Out-Null
        if (-not (Test-Path -LiteralPath $file)) { & pktmon.exe pcapng $trace -o $file | Out-Null }
    }
    elseif ($By -eq 'netsh') {
        & netsh.exe trace stop | Out-Null
        Write-Host "$trace`: Microsoft's etl2pcapng turns it into a file for Wireshark and postroad decode"
    }
    foreach ($made in $trace, $file) {
        if ($By -and (Test-Path -LiteralPath $made)) { [void] $Captures.Add([System.IO.Path]::GetFileName($made)) }
    }
}

# The start: both sides must answer

Assert-Msmq
if (-not $Api) { $Api = "http://${Postroad}:8180" }
$ApiAddress = New-Object System.Uri $Api
if ($ApiAddress.Scheme -ne 'http' -and $ApiAddress.Scheme -ne 'https') { Stop-Kit "-Api must begin with http:// or https://, got $Api" }
$ResultFile = Resolve-NewFile $Output
if (-not $Address) {
    try {
        $probe = New-Object System.Net.Sockets.TcpClient($Postroad, 1801)
        $Address = ([System.Net.IPEndPoint] $probe.Client.LocalEndPoint).Address.ToString() -replace '^::ffff:', ''
        $probe.Close()
    }
    catch {
        Stop-Kit "$Postroad does not answer on TCP 1801, Postroad's port for messages: $($_.Exception.InnerException.Message)"
    }
}
try {
    $manager = Get-FromApi '/manager'
}
catch {
    Stop-Kit "$($_.Exception.Message) Is -Api right, and -Token?"
}
$Workgroup = Test-IsWorkgroup
$Features = @(Get-MsmqFeature)
$Started = [System.DateTime]::UtcNow.ToString('yyyy-MM-ddTHH:mm:ssZ')
Write-Host "This computer is $Address, Postroad is $Postroad. The queues of this test start with $Prefix."
$capturedBy = Start-Capture

try {
    foreach ($name in 'plain', 'acks', 'back') { New-PostroadQueue $name }
    New-PostroadQueue 'orders' @{ transactional = $true }
    foreach ($name in 'plain', 'acks', 'back', 'remote') { [void] (New-LocalQueue $name) }
    [void] (New-LocalQueue 'orders' $true)

    # From Windows to Postroad

    foreach ($kind in 'express', 'recoverable') {
        Invoke-Step "send-$kind" "Windows sends a message, $kind" {
            $label = "send $kind"
            $sent = New-WindowsMessage $label ($kind -eq 'recoverable')
            (Open-QueueByName (Get-PostroadName 'plain')).Send($sent)
            $got = Receive-AtPostroad 'plain' $label
            Add-MessageFacts $sent $got
            Add-Fact 'class_name' 'normal' $got.class_name
        }
    }

    Invoke-Step 'send-transactional' 'Windows sends three messages in one transaction' {
        $labels = @(1..3 | ForEach-Object { "send transactional $_" })
        $queue = Open-QueueByName (Get-PostroadName 'orders')
        $transaction = New-Object System.Messaging.MessageQueueTransaction
        $transaction.Begin()
        foreach ($label in $labels) { $queue.Send((New-WindowsMessage $label), $transaction) }
        $transaction.Commit()
        $got = @($labels | ForEach-Object { Receive-AtPostroad 'orders' $_ })
        Add-Fact 'labels' $labels @($got | ForEach-Object { $_.label })
        Add-Fact 'first' $true ($got[0].first_in_transaction)
        Add-Fact 'last' $true ($got[2].last_in_transaction)
        Add-Fact 'delivery' 'transactional' ($got[1].delivery)
    }

    Invoke-Step 'send-large' 'Windows sends a message of 3 MB' {
        $data = New-LargeBody
        $message = New-Object System.Messaging.Message
        $message.Label = 'send large'
        $message.BodyStream = New-Object System.IO.MemoryStream(, $data)
        (Open-QueueByName (Get-PostroadName 'plain')).Send($message)
        # Not by ConvertFrom-Json, which takes no text of this size everywhere. Earlier messages are left over from steps
        # that failed.
        do {
            $text = Invoke-Api 'POST' ((Get-QueuePath (Get-OwnPostroadQueue 'plain')) + '/receive?count=1&timeout=60')
            if (-not $text) { throw "no message labelled 'send large' came to Postroad's queue plain within 60 s" }
        } until ($text -cmatch '"label":\s*"send large"')
        $found = [regex]::Match($text, '"body_base64":\s*"([^"]*)"')
        $got = [System.Convert]::FromBase64String($found.Groups[1].Value)
        Add-Fact 'length' $data.Length $got.Length
        Add-Fact 'sha256' (Get-Hash $data) (Get-Hash $got)
    }

    Invoke-Step 'send-acknowledged' 'Postroad tells Windows that a message arrived and was received' {
        $message = New-WindowsMessage 'send acknowledged' $true
        $message.AdministrationQueue = Open-QueueByName (Get-WindowsName 'acks')
        $message.AcknowledgeType = [System.Messaging.AcknowledgeTypes] 3
        (Open-QueueByName (Get-PostroadName 'plain')).Send($message)
        $got = Receive-AtPostroad 'plain' 'send acknowledged'
        $acks = @(Receive-Acknowledgments 2)
        Add-Fact 'acknowledgments' @($acks | ForEach-Object { $ClassNames[[int] $_.Acknowledgment] }) @('ack-reach-queue', 'ack-receive')
        Add-Fact 'correlation_id' (ConvertTo-Id $acks[0].CorrelationId) $got.id
    }

    Invoke-Step 'send-expired' 'Postroad tells Windows that nobody received a message in time' {
        $message = New-WindowsMessage 'send expired' $true
        $message.AdministrationQueue = Open-QueueByName (Get-WindowsName 'acks')
        $message.AcknowledgeType = [System.Messaging.AcknowledgeTypes] 12
        $message.TimeToBeReceived = New-Object System.TimeSpan(0, 0, 3)
        (Open-QueueByName (Get-PostroadName 'plain')).Send($message)
        $acks = @(Receive-Acknowledgments 1)
        Add-Fact 'acknowledgments' @($ClassNames[[int] $acks[0].Acknowledgment]) @('nack-receive-timeout')
        Add-Fact 'correlation_id' (ConvertTo-Id $acks[0].CorrelationId) (ConvertTo-Id $message.Id)
    }

    Invoke-Step 'send-several' 'Windows sends one message to two queues' {
        $names = (Get-PostroadName 'plain') + ',' + (Get-PostroadName 'back')
        (Open-QueueByName $names).Send((New-WindowsMessage 'send several'))
        Add-Fact 'first_label' 'send several' ((Receive-AtPostroad 'plain' 'send several').label)
        Add-Fact 'second_label' 'send several' ((Receive-AtPostroad 'back' 'send several').label)
    }

    # From Postroad to Windows

    foreach ($kind in 'express', 'recoverable') {
        Invoke-Step "receive-$kind" "Postroad sends a message, $kind" {
            $label = "receive $kind"
            $asked = Get-AskedMessage $label ($kind -eq 'recoverable')
            $id = Send-FromPostroad (Get-WindowsName 'plain') $asked
            $asked['id'] = $id
            $asked['delivery'] = $kind
            Add-MessageFacts (Receive-AtWindows 'plain' $label) (New-Object PSObject -Property $asked)
        }
    }

    Invoke-Step 'receive-transactional' 'Postroad sends three messages in one transaction' {
        $labels = @(1..3 | ForEach-Object { "receive transactional $_" })
        $messages = @($labels | ForEach-Object { @{ label = $_; body = $_; body_type = 8 } })
        $path = (Get-QueuePath (Get-WindowsName 'orders')) + '/messages'
        [void] (Invoke-Api 'POST' $path @{ messages = $messages; transactional = $true })
        $got = @($labels | ForEach-Object { Receive-AtWindows 'orders' $_ })
        Add-Fact 'labels' @($got | ForEach-Object { $_.Label }) $labels
        Add-Fact 'first' ($got[0].IsFirstInTransaction) $true
        Add-Fact 'last' ($got[2].IsLastInTransaction) $true
    }

    Invoke-Step 'receive-large' 'Postroad sends a message of 3 MB' {
        $data = New-LargeBody
        [void] (Invoke-Api 'POST' ((Get-QueuePath (Get-WindowsName 'plain')) + '/messages?label=receive%20large') $null $data)
        $got = Read-Body (Receive-AtWindows 'plain' 'receive large')
        Add-Fact 'length' $got.Length $data.Length
        Add-Fact 'sha256' (Get-Hash $got) (Get-Hash $data)
    }

    Invoke-Step 'receive-acknowledged' 'Windows tells Postroad that a message arrived and was received' {
        $asked = Get-AskedMessage 'receive acknowledged' $true
        $asked['ack'] = @('reach-queue', 'receive')
        $asked['admin_queue'] = Get-PostroadName 'acks'
        [void] (Send-FromPostroad (Get-WindowsName 'plain') $asked)
        $got = Receive-AtWindows 'plain' 'receive acknowledged'
        $acks = @(1..2 | ForEach-Object { Receive-AtPostroad 'acks' 'receive acknowledged' })
        Add-Fact 'acknowledgments' @('ack-reach-queue', 'ack-receive') @($acks | ForEach-Object { $_.class_name })
        Add-Fact 'correlation_id' (ConvertTo-Id $got.Id) ($acks[0].correlation_id)
    }

    Invoke-Step 'receive-expired' 'Windows tells Postroad that nobody received a message in time' {
        $asked = Get-AskedMessage 'receive expired' $true
        $asked['ack'] = @('nack-receive')
        $asked['admin_queue'] = Get-PostroadName 'acks'
        $asked['time_to_be_received'] = 3
        $id = Send-FromPostroad (Get-WindowsName 'plain') $asked
        # Windows looks at the time of a message when somebody looks at the queue.
        Start-Sleep -Seconds 5
        $waiting = @((Open-LocalQueue 'plain').GetAllMessages()).Count
        Write-Host "    $waiting messages wait in the queue here"
        $ack = Receive-AtPostroad 'acks' 'receive expired' 120
        Add-Fact 'acknowledgments' @('nack-receive-timeout') @($ack.class_name)
        Add-Fact 'correlation_id' $id $ack.correlation_id
    }

    # Remote reading and management

    Invoke-Step 'remote-read' 'Windows peeks and receives in a queue of Postroad' {
        $labels = @(1..3 | ForEach-Object { "remote read $_" })
        $own = Get-OwnPostroadQueue 'back'
        foreach ($label in $labels) { [void] (Send-FromPostroad $own @{ label = $label; body = $label; body_type = 8 }) }
        $queue = Open-QueueByName (Get-PostroadName 'back')
        Add-Fact 'peeked' ($queue.Peek($Patience).Label) ($labels[0])
        Add-Fact 'received' @(1..3 | ForEach-Object { $queue.Receive($Patience).Label }) $labels
        Add-Fact 'left' 0 ((Get-FromApi (Get-QueuePath $own)).messages)
    }

    Invoke-Step 'remote-purge' 'Windows purges a queue of Postroad' {
        $own = Get-OwnPostroadQueue 'back'
        [void] (Send-FromPostroad $own @{ label = 'remote purge'; body = 'x' })
        (Open-QueueByName (Get-PostroadName 'back')).Purge()
        Add-Fact 'left' 0 ((Get-FromApi (Get-QueuePath $own)).messages)
    }

    Invoke-Step 'remote-read-of-windows' 'Postroad receives in a queue of Windows' {
        if (-not $Interactive) { Skip-Step 'somebody must run a command beside Postroad: run the script with -Interactive' }
        $queue = Open-LocalQueue 'remote'
        foreach ($sid in 'S-1-1-0', 'S-1-5-7') {
            $account = (New-Object System.Security.Principal.SecurityIdentifier($sid)).Translate([System.Security.Principal.NTAccount])
            $queue.SetPermissions($account.Value, [System.Messaging.MessageQueueAccessRights]::ReceiveMessage)
        }
        $queue.Send((New-WindowsMessage 'remote read of windows'))
        Write-Host '    Run this beside Postroad; it must print a message with the label "remote read of windows":'
        Write-Host "      postroad remote receive $Address 'private`$\$Prefix-remote' --user NAME"
        [void] (Read-Host '    Press Enter when it is done')
        Add-Fact 'left' (@($queue.GetAllMessages()).Count) 0
    }

    Invoke-Step 'management' 'Windows asks Postroad about a queue' {
        $own = Get-OwnPostroadQueue 'acks'
        foreach ($number in 1..2) { [void] (Send-FromPostroad $own @{ label = "management $number"; body = 'x' }) }
        $found = New-Object -ComObject 'MSMQ.MSMQManagement'
        $found.Init($Postroad, [System.Type]::Missing, (Get-PostroadName 'acks'))
        $shown = Get-FromApi (Get-QueuePath $own)
        Add-Fact 'messages' ([long] $found.MessageCount) $shown.messages
        Add-Fact 'bytes' ([long] $found.BytesInQueue) $shown.bytes
    }

    Invoke-Step 'routing' 'Windows sends to a name that its directory leads to Postroad' {
        Assert-Domain 'routing'
        if (-not $Directory) { Skip-Step 'Postroad must be in the Active Directory: then run the script with -Directory' }
        $name = (Get-FromApi (Get-QueuePath (Get-OwnPostroadQueue 'plain'))).format_name
        (Open-QueueByName $name).Send((New-WindowsMessage 'routing' $true))
        $got = Receive-AtPostroad 'plain' 'routing' 120
        Add-Fact 'label' 'routing' $got.label
        Add-Fact 'delivery' 'recoverable' $got.delivery
        Write-Host "    $($got.hops) hops"
    }

    # Signed and encrypted

    Invoke-Step 'send-signed' 'Windows sends a message signed by you' {
        Assert-Domain 'signing with a registered certificate'
        $message = New-WindowsMessage 'send signed'
        $message.AttachSenderId = $true
        $message.UseAuthentication = $true
        $hash = 'sha512'
        try {
            $message.HashAlgorithm = [System.Enum]::Parse([System.Messaging.HashAlgorithm], 'Sha512')
        }
        catch [System.ArgumentException] {
            $hash = ([string] $message.HashAlgorithm).ToLowerInvariant() -replace '^sha$', 'sha1'
        }
        (Open-QueueByName (Get-PostroadName 'plain')).Send($message)
        $got = Receive-AtPostroad 'plain' 'send signed'
        Add-Fact 'body' 'body of send signed' $got.body
        Add-Fact 'hash' $hash $got.hash
        Add-Fact 'sender_id' ([System.Security.Principal.WindowsIdentity]::GetCurrent().User.Value) $got.sender_id
        Add-Fact 'authenticated' $true $got.authenticated
    }

    Invoke-Step 'send-encrypted' 'Windows sends a message encrypted with AES-256' {
        Assert-Domain 'encryption'
        if (-not $Directory) { Skip-Step 'Postroad''s keys must be in the Active Directory: then run the script with -Directory' }
        # By COM, because System.Messaging knows no AES.
        $info = New-Object -ComObject 'MSMQ.MSMQQueueInfo'
        $info.FormatName = (Get-FromApi (Get-QueuePath (Get-OwnPostroadQueue 'plain'))).format_name
        $queue = $info.Open(2, 0)
        $message = New-Object -ComObject 'MSMQ.MSMQMessage'
        $message.Label = 'send encrypted'
        $message.Body = 'body of send encrypted'
        $message.PrivLevel = 5
        $message.EncryptAlgorithm = 0x6610
        $message.Send($queue)
        $got = Receive-AtPostroad 'plain' 'send encrypted'
        Add-Fact 'body' 'body of send encrypted' $got.body
        Add-Fact 'encrypted' $true $got.encrypted
    }

    # SOAP and multicast

    Invoke-Step 'send-soap' 'Windows sends a message by SOAP' {
        Assert-Feature 'MSMQ-HTTP'
        $message = New-WindowsMessage 'send soap'
        (Open-QueueByName "DIRECT=HTTP://$Postroad/msmq/private`$/$Prefix-plain").Send($message)
        $got = Receive-AtPostroad 'plain' 'send soap'
        Add-Fact 'label' $message.Label $got.label
        Add-Fact 'body' 'body of send soap' $got.body
        Add-Fact 'priority' ([int] $message.Priority) $got.priority
    }

    Invoke-Step 'receive-soap' 'Postroad sends a message by SOAP' {
        Assert-Feature 'MSMQ-HTTP'
        $asked = @{ label = 'receive soap'; body = 'body of receive soap'; body_type = 8; priority = 5 }
        [void] (Send-FromPostroad "DIRECT=HTTP://$Address/msmq/private`$/$Prefix-plain" $asked)
        $got = Receive-AtWindows 'plain' 'receive soap'
        Add-Fact 'label' $got.Label $asked['label']
        Add-Fact 'body' ([System.Text.Encoding]::Unicode.GetString((Read-Body $got))) $asked['body']
        Add-Fact 'priority' ([int] $got.Priority) $asked['priority']
    }

    function Assert-Multicast {
        if (-not $Multicast) { Skip-Step 'run the script with -Multicast ADDRESS:PORT' }
        Assert-Feature 'MSMQ-Multicast'
        if ($null -eq (Get-FromApi '/manager').multicast) {
            Skip-Step 'multicast is off in Postroad: set enabled = true in [multicast] of its configuration'
        }
    }

    Invoke-Step 'send-multicast' 'Windows sends to a multicast address' {
        Assert-Multicast
        New-PostroadQueue 'cast' @{ multicast_address = $Multicast }
        Start-Sleep -Seconds 2
        (Open-QueueByName "MULTICAST=$Multicast").Send((New-WindowsMessage 'send multicast'))
        $got = Receive-AtPostroad 'cast' 'send multicast'
        Add-Fact 'label' 'send multicast' $got.label
        Add-Fact 'body' 'body of send multicast' $got.body
    }

    Invoke-Step 'receive-multicast' 'Postroad sends to a multicast address' {
        Assert-Multicast
        $queue = New-LocalQueue 'cast'
        $queue.MulticastAddress = $Multicast
        Start-Sleep -Seconds 2
        $asked = @{ label = 'receive multicast'; body = 'body of receive multicast'; body_type = 8 }
        [void] (Send-FromPostroad "MULTICAST=$Multicast" $asked)
        $got = Receive-AtWindows 'cast' 'receive multicast'
        Add-Fact 'label' $got.Label $asked['label']
        Add-Fact 'body' ([System.Text.Encoding]::Unicode.GetString((Read-Body $got))) $asked['body']
    }
}
finally {
    # What this run created, and nothing else.
    foreach ($path in $LocalQueues) {
        if ($path -notlike "*\$Prefix-*") { continue }
        try { [System.Messaging.MessageQueue]::Delete($path) }
        catch { Write-Warning "$path could not be deleted: $($_.Exception.Message)" }
    }
    foreach ($path in $PostroadQueues) {
        if ($path -notlike "*\$Prefix-*") { continue }
        try { [void] (Invoke-Api 'DELETE' (Get-QueuePath $path)) }
        catch { Write-Warning "$path on Postroad could not be deleted: $($_.Exception.Message)" }
    }
    Stop-Capture $capturedBy
    $result = New-Object System.Collections.Specialized.OrderedDictionary
    $result['kit'] = $Version
    $result['started'] = $Started
    $result['finished'] = [System.DateTime]::UtcNow.ToString('yyyy-MM-ddTHH:mm:ssZ')
    $result['prefix'] = $Prefix
    $details = @("mqrt.dll $(Get-FileVersion 'mqrt.dll')", "mqqm.dll $(Get-FileVersion 'mqqm.dll')", "workgroup $Workgroup") + $Features
    $result['windows'] = @{ computer = $env:COMPUTERNAME; version = (Get-ComputerVersion); address = $Address; details = $details }
    $result['postroad'] = @{ computer = [string] $manager.name; version = [string] $manager.version; address = $Postroad; details = @() }
    $result['steps'] = $Steps.ToArray()
    $result['captures'] = $Captures.ToArray()
    Write-Utf8 $ResultFile (ConvertTo-Json -InputObject $result -Depth 6)
    Write-Host ''
    Write-Host "wrote $ResultFile"
    Write-Host "next, beside Postroad: postroad kit check $([System.IO.Path]::GetFileName($ResultFile))"
}
