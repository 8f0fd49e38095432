// Formats numbers and names.

// Three significant digits, without an exponent: 0.0123, 12.3, 1234.
function digits(value, count = 3) {
  if (value === null || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  return minus(value.toFixed(Math.min(12, Math.max(0, count - 1 - magnitude))));
}

// Replaces a hyphen by a minus sign, which is as wide as a digit.
function minus(text) {
  return text.replace('-', '−');
}

function milliseconds(seconds) {
  return seconds === null ? '–' : `${digits(seconds * 1e3)}\u00a0ms`;
}

function percent(share, decimals = 1) {
  if (share === null || !Number.isFinite(share)) return '–';
  return `${minus((100 * share).toFixed(decimals))}\u00a0%`;
}

// A change or an error, with its sign.
function signedPercent(share) {
  return (share > 0 ? '+' : '') + percent(share);
}

function bytes(count) {
  if (count === null) return '∞';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (count >= 1024 && unit + 1 < units.length) {
    count /= 1024;
    ++unit;
  }
  return `${Number(count.toPrecision(4))}\u00a0${units[unit]}`;
}

// An amount of memory, in powers of 1000 as on the terminal; message sizes use powers of 1024.
function megabytes(count) {
  return `${(count / 1e6).toFixed(0)}\u00a0MB`;
}

// `count` units of `what` per second, with a prefix: 12.5 GB/s.
function perSecond(count, what) {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let at = 0;
  while (count >= 1000 && at + 1 < prefixes.length) {
    count /= 1000;
    ++at;
  }
  return `${Number(count.toPrecision(3))}\u00a0${prefixes[at]}${what}/s`;
}

function bandwidth(bytesPerSecond) {
  return perSecond(bytesPerSecond, 'B');
}

function flopRate(flopsPerSecond) {
  return perSecond(flopsPerSecond, 'FLOP');
}

// An end of [low, high] (`at` is 0 or 1), or null if the interval is unknown.
function endOf(range, at) {
  return range === null ? null : range[at];
}

function scaled(value, scale) {
  return value === null ? null : value * scale;
}

function interval(range, show) {
  return range === null ? '–' : `[${show(range[0])}, ${show(range[1])}]`;
}

// Keeps numbers and their units, and the ends of an interval, on one line.
function unbroken(text) {
  return text.replace(/(\d) (?=(%|ms|[µu]s|s|[kKMGT]i?B|GB\/s|(?:images|tokens|examples)\/s)(?![A-Za-z]))/g, '$1\u00a0')
      .replace(/\[(\S+), (\S+)\]/g, '[$1,\u00a0$2]');
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

// "strong scaling".
function scalingTitle(scaling) {
  return `${scaling.replace('_', ' ')} scaling`;
}

// Escapes markup and %{...}, which Plotly would interpret in its texts.
function plain(text) {
  return String(text)
      .replace(/&/g, '&amp;')
      .replace(/</g, '&lt;')
      .replace(/>/g, '&gt;')
      .replace(/%\{/g, '%&#123;');
}

// Returns the text of a hover box from lines of plain text, the first in bold.
function hoverText(first, ...lines) {
  return [`<b>${plain(first)}</b>`, ...lines.map(plain)].join('<br>');
}
