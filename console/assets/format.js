// Numbers, sizes, times and durations as people read them.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clockText = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const minuteText = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const dayText = new Intl.DateTimeFormat('en-GB', { weekday: 'short', day: 'numeric', month: 'short' });

/** 12,345 */
export const number = (value) => whole.format(value);

function scaled(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 && Number.isInteger(value) ? 0 : Math.abs(value) < 10 ? 1 : 0;
  return `${value.toFixed(digits).replace(/\.0$/, '')}${units[unit]}`;
}

/** 1.4 GiB */
export const bytes = (value) => (value === null || value === undefined ? '–' : scaled(value, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB']));

/** 12.3k */
export const short = (value) => scaled(value, 1000, ['', 'k', 'M', 'G', 'T']);

/** 12.3k/s; a rate below one in a hundred seconds is none. */
export const rate = (value) => (value < 0.01 ? '0/s' : `${value < 1 ? value.toFixed(2) : short(value)}/s`);

/** 3.4 MiB/s */
export const byteRate = (value) => (value < 0.5 ? '0 B/s' : `${bytes(value)}/s`);

/** The rate of a heat map or load in the unit of its measure. */
export const measured = (measure, value) => (measure === 'bytes' ? byteRate(value) : rate(value));

/** 850 µs, 12.4 ms, 3.2 s, 5 min */
export function duration(us) {
  if (us === null || us === undefined) return '–';
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${trim(us / 1000)} ms`;
  if (us < 60e6) return `${trim(us / 1e6)} s`;
  if (us < 3600e6) return `${Math.round(us / 60e6)} min`;
  if (us < 48 * 3600e6) return `${trim(us / 3600e6)} h`;
  return `${Math.round(us / 86400e6)} d`;
}

const trim = (value) => (value < 10 ? value.toFixed(1).replace(/\.0$/, '') : value.toFixed(0));

/** 38 % */
export const percent = (share) => `${share >= 0.1 ? Math.round(share * 100) : trim(share * 100)} %`;

export const clock = (ms) => clockText.format(ms);
export const minute = (ms) => minuteText.format(ms);
export const day = (ms) => dayText.format(ms);
export const iso = (ms) => new Date(ms).toISOString();

/** 5 min ago */
export function ago(ms, now) {
  const past = Math.max(0, now - ms);
  return past < 5000 ? 'just now' : `${duration(past * 1000)} ago`;
}

/** one region, 5 regions */
export const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many || one + 's'}`;

/** The text of a bound: the empty key is the start or the end of the table. */
export const startText = (key) => key.text || 'start of table';
export const endText = (key) => key.text || 'end of table';

/** A word or sentence that begins a line. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
