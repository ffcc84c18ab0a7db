// The heat map on a canvas: time from left to right, keys from top to bottom, load as colour.
//
// The picture is computed once per answer at one pixel per cell (or per group of cells, of which the hottest counts, where
// there are more cells than pixels: a hot range must not vanish), then scaled up without smoothing.

import { h } from './dom.js';
import * as format from './format.js';

// From nothing to hottest; read against the page's background.
const LIGHT = ['#f4f1ea', '#f6e3b4', '#f0b95a', '#e0772f', '#b23a2a', '#6f1430'];
const DARK = ['#171d22', '#2b2350', '#6d2a6b', '#b93c56', '#ee7b33', '#fbe28c'];
const SHADES = 256;

/** The distances of the marks of the time axis, in minutes, and the least in pixels. */
const TICKS_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880];
const TICK_WIDTH = 130;

/** Below this many pixels a drag is a click. */
const DRAG_MIN = 6;

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** The colours as little-endian RGBA, as `ImageData` has them. */
function shades(stops) {
  const colours = new Uint32Array(SHADES);
  for (let shade = 0; shade < SHADES; shade++) {
    const at = (shade / (SHADES - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const [from, to] = [channels(stops[low]), channels(stops[low + 1])];
    const [r, g, b] = from.map((channel, index) => Math.round(channel + (to[index] - channel) * (at - low)));
    colours[shade] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return colours;
}

/** The cells of `counts` in at most `width` × `height` pixels, the greatest of each group. */
export function reduce(counts, width, height) {
  const rows = counts.length;
  const columns = rows > 0 ? counts[0].length : 0;
  const [w, hgt] = [Math.max(1, Math.min(columns, width)), Math.max(1, Math.min(rows, height))];
  const cells = new Float64Array(w * hgt);
  const places = Int32Array.from({ length: columns }, (_, column) => Math.floor((column * w) / columns));
  let greatest = 0;
  for (let row = 0; row < rows; row++) {
    const line = counts[row];
    const base = Math.floor((row * hgt) / rows) * w;
    for (let column = 0; column < columns; column++) {
      const value = line[column];
      const at = base + places[column];
      if (value > cells[at]) {
        cells[at] = value;
        if (value > greatest) greatest = value;
      }
    }
  }
  return { width: w, height: hgt, cells, greatest };
}

/** Draws `counts` over the whole canvas. Answers the greatest count. */
export function draw(canvas, counts) {
  const context = canvas.getContext('2d', { alpha: false });
  const { width, height, cells, greatest } = reduce(counts, canvas.width, canvas.height);
  const colours = shades(isDark() ? DARK : LIGHT);
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  // The root spreads the low loads: on a linear scale one hot key turns the rest of the table into one colour.
  const scale = greatest > 0 ? (SHADES - 1) / Math.sqrt(greatest) : 0;
  for (let at = 0; at < pixels.length; at++) pixels[at] = colours[(Math.sqrt(cells[at]) * scale + 0.5) | 0];
  if (width === canvas.width && height === canvas.height) {
    context.putImageData(image, 0, 0);
    return greatest;
  }
  const small = new OffscreenCanvas(width, height);
  small.getContext('2d').putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  return greatest;
}

/** The colours from nothing to hottest, as a gradient for the legend. */
export const gradient = () => `linear-gradient(to right, ${(isDark() ? DARK : LIGHT).join(', ')})`;

/**
 * The widget: canvas, axes, pointer and keyboard. `zoom({ from, to, start, end })` is called with the chosen rectangle in
 * times and keys, `open(region)` for a click on a range.
 */
export function heatMap(heat, { zoom, open }) {
  let shown = heat;
  let cursor = null;
  let drag = null;
  const canvas = h('canvas', { tabindex: '0', role: 'img', 'aria-label': 'Heat map; arrow keys move a cursor, Enter opens the region under it' });
  const box = h('div', { class: 'selection', hidden: true });
  const mark = h('div', { class: 'mark', hidden: true });
  const unknown = h('div', { class: 'unknown' });
  const tip = h('div', { class: 'tip', hidden: true });
  const keys = h('div', { class: 'keys', 'aria-hidden': 'true' });
  const times = h('div', { class: 'times', 'aria-hidden': 'true' });
  const root = h('div', { class: 'heatmap' }, keys, h('div', { class: 'plot' }, canvas, unknown, mark, box, tip), times);

  const columns = () => shown.counts[0]?.length || 0;

  function paint() {
    const area = canvas.getBoundingClientRect();
    if (area.width === 0) return;
    const density = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(area.width * density), Math.round(area.height * density)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const before = performance.now();
    draw(canvas, shown.counts);
    const [span, late] = [shown.to_ms - shown.from_ms, (shown.known_from_ms ?? shown.from_ms) - shown.from_ms];
    unknown.style.width = `${Math.min(Math.max(Math.floor(late / shown.step_ms) * shown.step_ms, 0) / span, 1) * 100}%`;
    root.dataset.drawMs = (performance.now() - before).toFixed(1);
    labels(area);
  }

  function labels(area) {
    keys.replaceChildren();
    times.replaceChildren();
    const rows = shown.rows.length;
    const lines = Math.min(rows, Math.max(1, Math.floor(area.height / 44)));
    for (let line = 0; line < lines; line++) {
      const row = Math.floor((line * rows) / lines);
      keys.append(h('span', { title: format.startText(shown.rows[row].start), style: { top: `${(row / rows) * 100}%` } }, format.startText(shown.rows[row].start)));
    }
    const span = shown.to_ms - shown.from_ms;
    const step = TICKS_MIN.map((minutes) => minutes * 60e3).find((tick) => (span / tick) * TICK_WIDTH <= area.width) || span;
    const zone = new Date(shown.from_ms).getTimezoneOffset() * 60e3;
    for (let ms = Math.ceil((shown.from_ms - zone) / step) * step + zone; ms < shown.to_ms; ms += step) {
      const left = (ms - shown.from_ms) / span;
      if (left * area.width < area.width - TICK_WIDTH / 2) times.append(h('span', { style: { left: `${left * 100}%` } }, step >= 24 * 3600e3 ? format.day(ms) : span > 24 * 3600e3 ? `${format.day(ms)} ${format.minute(ms)}` : format.minute(ms)));
    }
  }

  /** The cell under a point of the canvas. */
  function cellAt(event) {
    const area = canvas.getBoundingClientRect();
    const inside = (value, size) => Math.min(Math.max(value, 0), size - 1e-6) / size;
    const [x, y] = [inside(event.clientX - area.left, area.width), inside(event.clientY - area.top, area.height)];
    return { row: Math.floor(y * shown.rows.length), column: Math.floor(x * columns()) };
  }

  function describe(cell) {
    cursor = cell;
    const area = canvas.getBoundingClientRect();
    const row = shown.rows[cell.row];
    if (!row) return;
    const ms = shown.from_ms + cell.column * shown.step_ms;
    const perSecond = (shown.counts[cell.row][cell.column] * 1000) / shown.step_ms;
    const [x, y] = [((cell.column + 0.5) / columns()) * area.width, ((cell.row + 0.5) / shown.rows.length) * area.height];
    tip.replaceChildren(
      h('strong', null, `${format.measured(shown.measure, perSecond)} ${shown.measure === 'bytes' ? '' : shown.measure}`),
      h('span', null, `${format.day(ms)} ${format.minute(ms)}–${format.minute(ms + shown.step_ms)}`),
      h('span', { class: 'key' }, 'from ', format.startText(row.start)),
      h('span', { class: 'key' }, 'to ', format.endText(row.end)),
      row.region !== null && row.region !== undefined ? h('span', null, `region ${row.region}`) : '',
    );
    tip.hidden = mark.hidden = false;
    const beside = x > area.width / 2 ? { left: 'auto', right: `${area.width - x + 14}px` } : { left: `${x + 14}px`, right: 'auto' };
    Object.assign(tip.style, beside, y > area.height / 2 ? { top: 'auto', bottom: `${area.height - y + 10}px` } : { top: `${y + 10}px`, bottom: 'auto' });
    Object.assign(mark.style, { left: `${x}px`, top: `${(cell.row / shown.rows.length) * area.height}px`, height: `${Math.max(2, area.height / shown.rows.length)}px` });
  }

  function quiet() {
    tip.hidden = mark.hidden = true;
    cursor = null;
  }

  function openAt(cell) {
    const region = shown.rows[cell.row]?.region;
    if (region !== null && region !== undefined) open(region);
  }

  canvas.onpointerdown = (event) => {
    if (event.button !== 0 || columns() === 0) return;
    drag = { x: event.clientX, y: event.clientY, cell: cellAt(event) };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (columns() === 0) return;
    if (!drag) return describe(cellAt(event));
    const area = canvas.getBoundingClientRect();
    const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
    const [x0, x1] = [drag.x, clamp(event.clientX, area.left, area.right)].sort((a, b) => a - b);
    const [y0, y1] = [drag.y, clamp(event.clientY, area.top, area.bottom)].sort((a, b) => a - b);
    if (x1 - x0 + (y1 - y0) < DRAG_MIN) return undefined;
    quiet();
    box.hidden = false;
    Object.assign(box.style, { left: `${x0 - area.left}px`, top: `${y0 - area.top}px`, width: `${x1 - x0}px`, height: `${y1 - y0}px` });
    return undefined;
  };
  canvas.onpointerup = (event) => {
    if (!drag) return;
    const [one, other] = [drag.cell, cellAt(event)];
    const moved = Math.abs(event.clientX - drag.x) + Math.abs(event.clientY - drag.y);
    drag = null;
    box.hidden = true;
    if (moved < DRAG_MIN) return openAt(other);
    zoom(rectangle(one, other));
  };
  canvas.onpointercancel = () => ((drag = null), (box.hidden = true));
  canvas.onpointerleave = () => drag || quiet();
  canvas.onkeydown = (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === 'Enter' && cursor) return openAt(cursor);
    if (!steps[event.key] || columns() === 0) return undefined;
    event.preventDefault();
    const [right, down] = steps[event.key];
    const from = cursor || { row: 0, column: columns() - 1 };
    const clamp = (value, size) => Math.min(Math.max(value, 0), size - 1);
    return describe({ row: clamp(from.row + down, shown.rows.length), column: clamp(from.column + right, columns()) });
  };

  /** Two corners as times and keys. */
  function rectangle(one, other) {
    const [c0, c1] = [one.column, other.column].sort((a, b) => a - b);
    const [r0, r1] = [one.row, other.row].sort((a, b) => a - b);
    return {
      from: shown.from_ms + c0 * shown.step_ms,
      to: shown.from_ms + (c1 + 1) * shown.step_ms,
      start: shown.rows[r0].start.bytes,
      end: shown.rows[r1].end.bytes,
    };
  }

  new ResizeObserver(paint).observe(canvas);
  root.paint = paint;
  root.keep = {
    name: `heat ${heat.table}`,
    state: heat,
    update(next) {
      shown = next;
      if (cursor && (cursor.row >= shown.rows.length || cursor.column >= columns())) quiet();
      paint();
    },
  };
  return root;
}
