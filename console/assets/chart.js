// Small charts in SVG: a line over time, and bars of a histogram.

import { h, svg } from './dom.js';
import * as format from './format.js';

const WIDTH = 300;
const HEIGHT = 72;

/**
 * The load over time: `points` of `[ms, value]` in order. Minutes without a point break the line, because nothing is
 * known of them. The value under the pointer is read out beside the title.
 */
export function timeLine(title, points, text, className) {
  if (points.length < 2) return h('figure', { class: `chart ${className}` }, h('figcaption', null, title), h('p', { class: 'empty' }, 'Drawn from the second minute on.'));
  const greatest = Math.max(...points.map(([, value]) => value)) || 1;
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const x = (ms) => ((ms - from) / (to - from || 1)) * WIDTH;
  const y = (value) => HEIGHT - (value / greatest) * (HEIGHT - 4);
  const step = points.length > 1 ? Math.min(...points.slice(1).map(([ms], at) => ms - points[at][0])) : 60000;
  const pieces = [];
  points.forEach(([ms, value], at) => {
    if (at === 0 || ms - points[at - 1][0] > step * 1.5) pieces.push([]);
    pieces[pieces.length - 1].push([x(ms), y(value)]);
  });
  const lines = pieces.map((piece) => 'M' + piece.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join('L'));
  const areas = pieces.map((piece, at) => `${lines[at]}L${piece[piece.length - 1][0].toFixed(1)} ${HEIGHT}L${piece[0][0].toFixed(1)} ${HEIGHT}Z`);
  const last = points[points.length - 1];
  const readout = h('strong', null, text(last[1]));
  const cursor = svg('line', { class: 'cursor', y1: 0, y2: HEIGHT, x1: -9, x2: -9 });
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const ms = from + ((event.clientX - box.left) / box.width) * (to - from);
    const near = points.reduce((best, point) => (Math.abs(point[0] - ms) < Math.abs(best[0] - ms) ? point : best));
    const shown = event.currentTarget.closest('figure');
    shown.querySelector('strong').textContent = `${text(near[1])} at ${format.minute(near[0])}`;
    const line = shown.querySelector('.cursor');
    line.setAttribute('x1', x(near[0]));
    line.setAttribute('x2', x(near[0]));
  };
  const leave = (event) => {
    const shown = event.currentTarget.closest('figure');
    shown.querySelector('strong').textContent = text(last[1]);
    shown.querySelector('.cursor').setAttribute('x1', -9);
    shown.querySelector('.cursor').setAttribute('x2', -9);
  };
  return h(
    'figure',
    { class: `chart ${className}` },
    h('figcaption', null, title, readout),
    svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: now ${text(last[1])}, at most ${text(greatest)}`, on: { pointermove: move, pointerleave: leave } },
      areas.map((d) => svg('path', { class: 'area', d })), lines.map((d) => svg('path', { class: 'line', d })), cursor),
    h('div', { class: 'axis' }, h('span', null, format.minute(from)), h('span', null, `at most ${text(greatest)}`), h('span', null, format.minute(to))),
  );
}

/** The load of minutes as three lines. */
export function loadCharts(history) {
  const line = (title, name, text, className) => timeLine(title, history.map((point) => [point.minute_ms, point[name] / 60]), text, className);
  return h('div', { class: 'charts' }, line('Rows read', 'reads', format.rate, 'reads'), line('Rows written', 'writes', format.rate, 'writes'), line('Bytes', 'bytes', format.byteRate, 'bytes'));
}

/** Bars of a histogram: `[name, count]`. */
export function histogram(title, bars) {
  const greatest = Math.max(...bars.map(([, value]) => value)) || 1;
  const column = ([name, value]) => h('div', { class: 'column', title: `${name}: ${value}` }, h('span', { class: 'amount' }, value > 0 ? format.number(value) : ''), h('span', { class: 'fill', style: { height: `${Math.round((value / greatest) * 120)}px` } }), h('span', { class: 'name' }, name));
  return h('div', { class: 'histogram', role: 'img', 'aria-label': title }, bars.map(column));
}
