// The heat map of a table: what is hot, where and since when, and what to do about it.

import { h } from './dom.js';
import * as format from './format.js';
import { gradient, heatMap } from './heatmap.js';
import { advice, bar, choices, empty, head, link, panel, range, regionLink } from './parts.js';
import { tableList } from './page_tables.js';

const HOUR = 3600e3;
const SPANS = [['1', '1 h'], ['6', '6 h'], ['24', '24 h'], ['168', '7 d']];
const MEASURES = [['writes', 'Writes'], ['reads', 'Reads'], ['bytes', 'Bytes']];
const ZOOMED = { from: null, to: null, start: null, end: null };

export const heatTablesPage = () => ({
  title: 'Heat map',
  every: 5000,
  load: (page) => page.ask('tables'),
  view: (page, { tables }) => [head('Heat map', 'Choose a table: its load over time and keys.'), tableList(page, tables, (table) => `/heat/${encodeURIComponent(table.name)}`)],
});

export const heatPage = ({ parameters: [name], query }) => ({
  title: `Heat of ${name}`,
  every: 15000,
  keys: { Escape() { if (isZoomed(query)) history.back(); } },
  async load(page) {
    const span = page.query.get('span');
    const asked = Object.fromEntries([...page.query].filter(([key]) => key !== 'span'));
    const width = document.getElementById('main').clientWidth;
    const heat = await page.ask(`tables/${encodeURIComponent(name)}/heat`, { ...asked, span: hours(span) * HOUR, columns: Math.min(1440, Math.max(120, width)), rows: 1000 });
    // A column of ten minutes does not change much in one.
    page.every = Math.min(Math.max(15000, heat.step_ms / 4), 120000);
    return heat;
  },
  view,
});

/** The span in hours; anything else than a number is left for the API to refuse. */
const hours = (span) => (span === null ? 6 : Number(span) || span);
const isZoomed = (query) => ['from', 'to', 'start', 'end'].some((key) => query.has(key));

function view(page, heat) {
  const zoomed = isZoomed(page.query);
  const measure = page.query.get('measure') || 'writes';
  const total = heat.counts.reduce((sum, row) => sum + row.reduce((a, b) => a + b, 0), 0);
  const greatest = heat.counts.reduce((most, row) => row.reduce((a, b) => (a > b ? a : b), most), 0);
  const perSecond = (value) => format.measured(heat.measure, (value * 1000) / heat.step_ms);
  const zoom = ({ from, to, start, end }) => page.turn({ from, to, start, end });
  const open = (region) => page.go(`/regions/${region}`);
  const known = heat.known_from_ms !== null && heat.known_from_ms > heat.from_ms + heat.step_ms;
  return [
    head(`Heat of ${heat.table}`, `${format.count(heat.rows.length, 'key range')}, ${format.day(heat.from_ms)} ${format.minute(heat.from_ms)} to ${format.day(heat.to_ms) === format.day(heat.from_ms) ? '' : `${format.day(heat.to_ms)} `}${format.minute(heat.to_ms)}, a column is ${format.duration(heat.step_ms * 1000)}`, link(`/tables/${encodeURIComponent(heat.table)}`, 'Table'), link(`/data/${encodeURIComponent(heat.table)}`, 'Browse rows')),
    h('div', { class: 'tools' },
      choices('What to count', MEASURES, measure, (value) => page.turn({ measure: value })),
      choices('Time', SPANS, zoomed ? null : page.query.get('span') || '6', (value) => page.turn({ span: value, ...ZOOMED })),
      zoomed && h('button', { id: 'unzoom', on: { click: () => page.turn(ZOOMED) } }, 'Show all'),
      h('div', { class: 'legend' }, h('span', null, '0'), h('span', { class: 'scale', style: { 'background-image': gradient() } }), h('span', null, perSecond(greatest)))),
    heat.rows.length === 0 ? empty('The table has no regions in this range.') : heatMap(heat, { zoom, open }),
    h('p', { class: 'note' }, total === 0 ? 'Nothing was counted in this time. ' : '', known ? `Counts are known from ${format.day(heat.known_from_ms)} ${format.minute(heat.known_from_ms)} on. ` : '', 'Drag to zoom, click a range to open its region, Esc goes back.'),
    panel('Hottest', heat.hottest.length === 0 ? empty('No range or key stands out.') : hottest(page, heat)),
  ];
}

function hottest(page, heat) {
  const greatest = heat.hottest[0].per_second;
  const around = (spot) => {
    const query = new URLSearchParams(page.query);
    for (const [name, key] of [['start', spot.start], ['end', spot.end]]) key.bytes ? query.set(name, key.bytes) : query.delete(name);
    return `${location.pathname}?${query}`;
  };
  const one = (spot) => h('li', null,
    h('div', { class: 'spot' }, h('div', { class: 'name' }, h('span', { class: 'kind' }, spot.end ? 'range' : 'key'), spot.end ? h('a', { href: around(spot), title: 'Zoom in' }, range(spot.start, spot.end)) : range(spot.start, null)), h('span', null, regionLink(spot.region)), h('span', { class: 'share' }, `${format.percent(spot.share)} of the table`), bar(spot.per_second, greatest, format.measured(heat.measure, spot.per_second))),
    spot.advice && advice(spot.advice));
  return h('ol', { class: 'hottest' }, heat.hottest.map(one));
}
