# Shared by inventory.ps1 and test.ps1, which read this file into themselves. For Windows PowerShell 5.1.

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

$WindowsPowerShell = Join-Path $env:SystemRoot 'System32\WindowsPowerShell\v1.0\powershell.exe'

function Stop-Kit([string] $Sentence) {
    # Ends the script with a sentence and exit code 2: nothing was tried.
    [Console]::Error.WriteLine($Sentence)
    exit 2
}

function Test-IsElevated {
    $me = New-Object System.Security.Principal.WindowsPrincipal([System.Security.Principal.WindowsIdentity]::GetCurrent())
    return $me.IsInRole([System.Security.Principal.WindowsBuiltInRole]::Administrator)
}

function Assert-Msmq {
    # MSMQ must be there and run, and so must System.Messaging, which only Windows PowerShell can load.
    $service = Get-Service -Name 'MSMQ' -ErrorAction SilentlyContinue
    if ($null -eq $service) {
        Stop-Kit ('Message Queuing is not installed. As an administrator: ' +
            'Enable-WindowsOptionalFeature -Online -All -FeatureName MSMQ-Server')
    }
    if ($service.Status -ne 'Running') {
        Stop-Kit 'The service Message Queuing does not run. As an administrator: Start-Service MSMQ'
    }
    try {
        Add-Type -AssemblyName 'System.Messaging'
    }
    catch {
        Stop-Kit "System.Messaging, a part of .NET Framework, cannot be loaded: $($_.Exception.Message)"
    }
}

function Get-MsmqFeature {
    # The names of the installed features of Message Queuing: MSMQ-Server, MSMQ-HTTP, MSMQ-Multicast, MSMQ-ADIntegration...
    try {
        $found = Get-CimInstance -ClassName 'Win32_OptionalFeature' -Filter "Name LIKE 'MSMQ%' AND InstallState = 1"
        return @($found | ForEach-Object { $_.Name })
    }
    catch {
        Write-Warning "The installed features cannot be listed: $($_.Exception.Message)"
        return @()
    }
}

function Get-MsmqParameter([string] $Path, [string] $Name) {
    # A value of HKLM\SOFTWARE\Microsoft\MSMQ\Parameters, or $null.
    $key = Join-Path 'HKLM:\SOFTWARE\Microsoft\MSMQ\Parameters' $Path
    $item = Get-ItemProperty -Path $key -ErrorAction SilentlyContinue
    if ($null -eq $item -or $null -eq $item.PSObject.Properties[$Name]) {
        return $null
    }
    return $item.PSObject.Properties[$Name].Value
}

function Test-IsWorkgroup {
    return ((Get-MsmqParameter '' 'Workgroup') -eq 1)
}

function Get-ComputerVersion {
    $system = Get-CimInstance -ClassName 'Win32_OperatingSystem'
    return ('{0} {1}' -f $system.Caption, $system.Version)
}

function Get-FileVersion([string] $Name) {
    $file = Join-Path $env:SystemRoot "System32\$Name"
    if (Test-Path -LiteralPath $file) {
        return [System.Diagnostics.FileVersionInfo]::GetVersionInfo($file).ProductVersion
    }
    return 'missing'
}

function Write-Utf8([string] $Path, [string] $Text) {
    # UTF-8 without a mark at its start, which Out-File of Windows PowerShell cannot write.
    [System.IO.File]::WriteAllText($Path, $Text, (New-Object System.Text.UTF8Encoding($false)))
}

function Resolve-NewFile([string] $Path) {
    # The full path of a file that does not exist yet.
    $full = $ExecutionContext.SessionState.Path.GetUnresolvedProviderPathFromPSPath($Path)
    if (Test-Path -LiteralPath $full) {
        Stop-Kit "$full exists already. Name another file, or remove this one."
    }
    return $full
}
