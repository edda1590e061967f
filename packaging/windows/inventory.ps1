<#
.SYNOPSIS
    Writes what this computer's Message Queuing has to a file that `postroad definitions import` takes.

.DESCRIPTION
    Reads queues, their properties and access lists, and, as comments, registered certificates and routing. Changes
    nothing on this computer. Run it as an administrator, or queues that you may not read are listed as comments.

.PARAMETER Output
    The file to write. It must not exist. Certificates go into files beside it.

.EXAMPLE
    powershell -ExecutionPolicy Bypass -File inventory.ps1 -Output orders.toml
#>
[CmdletBinding()]
param(
    [string] $Output = 'definitions.toml'
)

if ($PSVersionTable.PSEdition -eq 'Core') {
    if (-not $IsWindows) {
        [Console]::Error.WriteLine('This script runs on Windows, beside Message Queuing.')
        exit 2
    }
    & (Join-Path $env:SystemRoot 'System32\WindowsPowerShell\v1.0\powershell.exe') -NoProfile -ExecutionPolicy Bypass -File $PSCommandPath -Output $Output
    exit $LASTEXITCODE
}

. (Join-Path $PSScriptRoot 'common.ps1')

$NoLimit = [long] 4294967295

# Access lists: documented functions of mqrt.dll, because no cmdlet shows a descriptor as SDDL.
$Native = @'
using System;
using System.ComponentModel;
using System.Runtime.InteropServices;
using System.Text;

public static class PostroadKit
{
    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    private static extern int MQPathNameToFormatName(string path, StringBuilder name, ref int length);

    [DllImport("mqrt.dll", CharSet = CharSet.Unicode)]
    private static extern int MQGetQueueSecurity(string name, int information, byte[] descriptor, int size, out int needed);

    private const int TooSmall = unchecked((int)0xC00E0023); // MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL
    private const int OwnerGroupDacl = 7;

    public static byte[] Descriptor(string path)
    {
        StringBuilder name = new StringBuilder(512);
        int length = name.Capacity;
        int result = MQPathNameToFormatName(path, name, ref length);
        if (result < 0) throw new Win32Exception(result, "MQPathNameToFormatName: 0x" + result.ToString("X8"));
        byte[] descriptor = new byte[0];
        int needed;
        result = MQGetQueueSecurity(name.ToString(), OwnerGroupDacl, descriptor, 0, out needed);
        if (result == TooSmall)
        {
            descriptor = new byte[needed];
            result = MQGetQueueSecurity(name.ToString(), OwnerGroupDacl, descriptor, needed, out needed);
        }
        if (result < 0) throw new Win32Exception(result, "MQGetQueueSecurity: 0x" + result.ToString("X8"));
        return descriptor;
    }
}
'@

function ConvertTo-TomlText([string] $Text) {
    # A literal text where possible, because paths have backslashes.
    if ($Text -cmatch "^[^'\x00-\x1f\x7f]*\z") {
        return "'$Text'"
    }
    $made = New-Object System.Text.StringBuilder
    foreach ($character in $Text.ToCharArray()) {
        $number = [int] $character
        if ($character -eq '"' -or $character -eq '\') {
            [void] $made.Append('\').Append($character)
        }
        elseif ($number -lt 32 -or $number -eq 127) {
            [void] $made.Append(('\u{0:x4}' -f $number))
        }
        else {
            [void] $made.Append($character)
        }
    }
    return '"' + $made.ToString() + '"'
}

function ConvertTo-TomlValue($Value) {
    if ($Value -is [bool]) {
        if ($Value) { return 'true' }
        return 'false'
    }
    if ($Value -is [string]) {
        return ConvertTo-TomlText $Value
    }
    return ([long] $Value).ToString([System.Globalization.CultureInfo]::InvariantCulture)
}

function ConvertTo-Comment([string] $Text) {
    return '# ' + ($Text -replace '[\x00-\x1f\x7f]+', ' ')
}

function ConvertTo-Sddl([byte[]] $Descriptor) {
    # Without aliases, which mean other SIDs on another computer, and with rights as numbers.
    $read = New-Object System.Security.AccessControl.RawSecurityDescriptor($Descriptor, 0)
    $text = ''
    if ($null -ne $read.Owner) { $text += 'O:' + $read.Owner.Value }
    if ($null -ne $read.Group) { $text += 'G:' + $read.Group.Value }
    if ($null -eq $read.DiscretionaryAcl) {
        return $text
    }
    $text += 'D:'
    foreach ($entry in $read.DiscretionaryAcl) {
        if ($entry -isnot [System.Security.AccessControl.CommonAce] -or $entry.IsCallback) {
            throw "an entry of the type $($entry.AceType) cannot be carried over"
        }
        if (($entry.AceFlags -band [System.Security.AccessControl.AceFlags]::InheritOnly) -ne 0) {
            continue
        }
        $kind = 'A'
        if ($entry.AceQualifier -eq [System.Security.AccessControl.AceQualifier]::AccessDenied) { $kind = 'D' }
        $mask = [System.BitConverter]::ToUInt32([System.BitConverter]::GetBytes([int] $entry.AccessMask), 0)
        $text += ('({0};;0x{1:x};;;{2})' -f $kind, $mask, $entry.SecurityIdentifier.Value)
    }
    return $text
}

function Get-LocalPath($Queue, [bool] $IsPrivate) {
    # private$\orders, or COMPUTER\orders for a public queue.
    $name = $Queue.QueueName
    if ($IsPrivate) {
        return ($name -replace '^.*\\?(?i:private\$\\)', 'private$\')
    }
    return "$env:COMPUTERNAME\$name"
}

function ConvertTo-Definition([System.Collections.Specialized.OrderedDictionary] $Row) {
    # One [[queue]]. Left out is what is $null.
    $lines = @('[[queue]]')
    foreach ($key in $Row.Keys) {
        if ($null -ne $Row[$key]) {
            $lines += "$key = $(ConvertTo-TomlValue $Row[$key])"
        }
    }
    return $lines
}

function Get-QueueRow($Queue, [string] $Path, [bool] $IsPrivate) {
    # The properties of a queue under the names of `postroad definitions`.
    $row = New-Object System.Collections.Specialized.OrderedDictionary
    $row['path'] = $Path
    $row['transactional'] = [bool] $Queue.Transactional
    $row['label'] = ([string] $Queue.Label) -replace '[\x00-\x1f\x7f]', ' ' # Postroad's labels have no control characters
    $row['journal'] = [bool] $Queue.UseJournalQueue
    $row['quota_kb'] = [System.Math]::Min([long] $Queue.MaximumQueueSize, $NoLimit)
    $row['journal_quota_kb'] = [System.Math]::Min([long] $Queue.MaximumJournalSize, $NoLimit)
    $row['authenticate'] = [bool] $Queue.Authenticate
    $row['privacy'] = ([string] $Queue.EncryptionRequired).ToLowerInvariant()
    $row['base_priority'] = $null
    if (-not $IsPrivate) { $row['base_priority'] = [int] $Queue.BasePriority }
    $row['multicast_address'] = $null
    if (-not [string]::IsNullOrEmpty($Queue.MulticastAddress)) { $row['multicast_address'] = [string] $Queue.MulticastAddress }
    $row['acl'] = $null
    return $row
}

function Get-QueueLines($Queues, [bool] $IsPrivate) {
    foreach ($found in $Queues) {
        # A listed queue has a direct format name, which has no properties: open it by its path.
        $path = Get-LocalPath $found $IsPrivate
        $opened = $path
        if ($IsPrivate) { $opened = ".\$path" }
        ''
        if ($IsPrivate -and $path -match '_queue\$$') {
            ConvertTo-Comment "$path belongs to Message Queuing itself."
            continue
        }
        try {
            $row = Get-QueueRow (New-Object System.Messaging.MessageQueue($opened)) $path $IsPrivate
        }
        catch {
            ConvertTo-Comment "$path could not be read: $($_.Exception.Message)"
            continue
        }
        try {
            $row['acl'] = ConvertTo-Sddl ([PostroadKit]::Descriptor($opened))
            if ($row['acl'] -notmatch 'D:') {
                ConvertTo-Comment 'It has no access list: everybody may do everything.'
            }
        }
        catch {
            $row['acl'] = $null
            ConvertTo-Comment "Its access list could not be read, and is Postroad's default: $($_.Exception.Message)"
        }
        ConvertTo-Definition $row
    }
}

function Get-UserCertificates {
    # The certificates that users have registered in Active Directory: mSMQSignCertificates, MS-MQMQ 2.2.21.
    $searcher = New-Object System.DirectoryServices.DirectorySearcher('(&(objectCategory=person)(mSMQSignCertificates=*))')
    $searcher.PageSize = 500
    foreach ($word in 'mSMQSignCertificates', 'objectSid', 'sAMAccountName') { [void] $searcher.PropertiesToLoad.Add($word) }
    foreach ($found in $searcher.FindAll()) {
        $data = [byte[]] $found.Properties['msmqsigncertificates'][0]
        $sid = New-Object System.Security.Principal.SecurityIdentifier(([byte[]] $found.Properties['objectsid'][0]), 0)
        $at = 4
        $count = [System.BitConverter]::ToUInt32($data, 0)
        for ($number = 1; $number -le $count -and $at + 36 -le $data.Length; $number++) {
            $size = [int] [System.BitConverter]::ToUInt32($data, $at + 32)
            if ($size -lt 0 -or $at + 36 + $size -gt $data.Length) { break }
            $certificate = New-Object byte[] $size
            [System.Array]::Copy($data, $at + 36, $certificate, 0, $size)
            New-Object PSObject -Property @{
                User = [string] $found.Properties['samaccountname'][0]; Sid = $sid.Value; Data = $certificate; Number = $number
            }
            $at += 36 + $size
        }
    }
}

function Get-CertificateLines([string] $Base) {
    ''
    '# Certificates. Copy these lines to the configuration of the manager, with the files beside this one.'
    if (Test-IsWorkgroup) {
        '# None: this computer is not in a domain, so no user has registered one.'
        return
    }
    try {
        $number = 0
        foreach ($each in Get-UserCertificates) {
            $number++
            $file = '{0}.certificate-{1}.pem' -f $Base, $number
            $text = [System.Convert]::ToBase64String($each.Data, [System.Base64FormattingOptions]::InsertLineBreaks)
            Write-Utf8 $file ("-----BEGIN CERTIFICATE-----`r`n$text`r`n-----END CERTIFICATE-----`r`n")
            '#'
            ConvertTo-Comment "the user $($each.User)"
            '# [[certificate]]'
            "# sid = $(ConvertTo-TomlText $each.Sid)"
            "# file = $(ConvertTo-TomlText ([System.IO.Path]::GetFileName($file)))"
        }
        if ($number -eq 0) { '# None.' }
    }
    catch {
        ConvertTo-Comment "Active Directory could not be read: $($_.Exception.Message)"
    }
}

function Get-DirectoryObjects([string] $Filter, [string[]] $Properties) {
    $root = New-Object System.DirectoryServices.DirectoryEntry('LDAP://RootDSE')
    $base = New-Object System.DirectoryServices.DirectoryEntry("LDAP://$($root.Properties['configurationNamingContext'][0])")
    $searcher = New-Object System.DirectoryServices.DirectorySearcher($base, $Filter, $Properties)
    $searcher.PageSize = 500
    return $searcher.FindAll()
}

function Get-RoutingLines {
    ''
    '# Routing. Nothing here is imported: an enterprise.toml, or [directory] ldap, is where Postroad reads it.'
    if (Test-IsWorkgroup) {
        '# This computer is not in a domain: it has no routes but direct connections.'
        return
    }
    foreach ($name in 'MachineQuota', 'MachineJournalQuota', 'SiteId', 'EnterpriseId', 'MQS_Routing', 'MQS_DepClients') {
        $value = Get-MsmqParameter 'MachineCache' $name
        if ($value -is [byte[]]) { $value = ($value | ForEach-Object { $_.ToString('x2') }) -join '' }
        if ($null -ne $value) { ConvertTo-Comment "$name = $value" }
    }
    try {
        foreach ($site in Get-DirectoryObjects '(objectClass=site)' @('name')) {
            ConvertTo-Comment "site $($site.Properties['name'][0])"
        }
        foreach ($link in Get-DirectoryObjects '(objectClass=mSMQSiteLink)' @('mSMQCost', 'mSMQSite1', 'mSMQSite2')) {
            $ends = "$($link.Properties['msmqsite1'][0]) and $($link.Properties['msmqsite2'][0])"
            ConvertTo-Comment "routing link between $ends, cost $($link.Properties['msmqcost'][0])"
        }
    }
    catch {
        ConvertTo-Comment "Active Directory could not be read: $($_.Exception.Message)"
    }
}

Assert-Msmq
$file = Resolve-NewFile $Output
if (-not (Test-IsElevated)) {
    Write-Warning 'You are not an administrator: queues and access lists that you may not read become comments.'
}
Add-Type -TypeDefinition $Native

$private = [System.Messaging.MessageQueue]::GetPrivateQueuesByMachine('.')
$public = @()
if (-not (Test-IsWorkgroup)) {
    try {
        $public = [System.Messaging.MessageQueue]::GetPublicQueuesByMachine('.')
    }
    catch {
        Write-Warning "Public queues cannot be listed: $($_.Exception.Message)"
    }
}
$lines = @(
    (ConvertTo-Comment "Definitions of the Message Queuing of $env:COMPUTERNAME, by inventory.ps1 on $(Get-ComputerVersion)")
    (ConvertTo-Comment "mqrt.dll $(Get-FileVersion 'mqrt.dll'); features: $((Get-MsmqFeature) -join ', ')")
)
$lines += @(Get-QueueLines $private $true)
$lines += @(Get-QueueLines $public $false)
$lines += @(Get-CertificateLines ([System.IO.Path]::ChangeExtension($file, $null).TrimEnd('.')))
$lines += @(Get-RoutingLines)
Write-Utf8 $file (($lines -join "`n") + "`n")
Write-Output "wrote $(@($private).Count) private and $(@($public).Count) public queues to $file"
Write-Output "next, beside Postroad: postroad definitions import --dry-run $([System.IO.Path]::GetFileName($file))"
