// What happened: events, procedures, failovers and slow requests.

import { histogram } from './chart.js';
import { h } from './dom.js';
import * as format from './format.js';
import { choices, empty, figure, groupLink, head, link, list, moment, panel, placeLink, range, regionLink, sentence, serverText, state, tableLink, time } from './parts.js';

const KINDS = ['split', 'merge', 'move', 'election', 'handover', 'failover', 'server', 'master', 'replication', 'table', 'setting', 'other'];
const PAGE = 100;

export const eventsPage = () => ({
  title: 'Events',
  every: 5000,
  async load(page) {
    const [events, procedures] = await Promise.all([page.ask('events', { ...Object.fromEntries(page.query), limit: PAGE }), page.ask('procedures')]);
    return { events: events.events, running: procedures.procedures.filter((procedure) => !procedure.done) };
  },
  view(page, { events, running }) {
    const kind = page.query.get('kind') || '';
    const last = events[events.length - 1];
    return [
      head('Events', 'What the cluster did, and why.', link('/procedures', 'All procedures')),
      running.length > 0 && panel('Running now', procedureList(page, running)),
      choices('Kind', [['', 'All'], ...KINDS.map((name) => [name, format.capital(name)])], kind, (value) => page.turn({ kind: value, before: null })),
      eventList(events),
      h('p', { class: 'pages' }, page.query.has('before') && h('button', { on: { click: () => page.turn({ before: null }) } }, 'Newest'), events.length === PAGE && h('button', { on: { click: () => page.turn({ before: last.time_ms }) } }, 'Older')),
    ];
  },
});

/** Events as a timeline, a heading per day. */
export function eventList(events) {
  if (events.length === 0) return empty('Nothing happened in the time that is remembered.');
  const days = [];
  for (const event of events) {
    const day = format.day(event.time_ms);
    if (days.length === 0 || days[days.length - 1][0] !== day) days.push([day, []]);
    days[days.length - 1][1].push(event);
  }
  const one = (event) => h('li', { class: `event ${event.kind}` }, time(event.time_ms), h('span', { class: 'tag' }, event.kind), h('div', null, h('p', { class: 'what' }, event.what), (event.reason || event.places.length > 0) && h('p', { class: 'reason' }, event.reason, event.places.length > 0 && h('span', { class: event.reason ? 'places' : 'places alone' }, event.places.map((place) => [placeLink(place), ' '])))));
  return days.map(([day, list]) => h('section', { class: 'timeline' }, h('h3', null, day), h('ol', null, list.map(one))));
}

export const proceduresPage = () => ({
  title: 'Procedures',
  every: 3000,
  load: (page) => page.ask('procedures'),
  view: (page, { procedures }) => [head('Procedures', 'Changes of several steps that the master drives to completion.', link('/events', 'Events')), procedures.length === 0 ? empty('No procedure has run in the time that is remembered.') : procedureList(page, procedures)],
});

function procedureList(page, rows) {
  return list(page, {
    name: 'procedures',
    rows,
    columns: [
      { name: 'Procedure', by: (row) => row.id, cell: (row) => row.id },
      { name: 'What', wide: true, cell: (row) => [row.what, row.reason && h('span', { class: 'reason' }, ` – ${row.reason}`)] },
      { name: 'State', wide: true, by: (row) => row.state, cell: (row) => h('span', { class: row.failed ? 'state bad' : row.done ? 'state quiet' : 'state busy' }, row.state) },
      { name: 'Of', cell: (row) => row.places.map((place) => [placeLink(place), ' ']) },
      { name: 'Started', numeric: true, by: (row) => row.started_ms || 0, cell: (row) => (row.started_ms === null ? '–' : moment(row.started_ms)) },
      { name: 'Took', numeric: true, by: (row) => (row.ended_ms || 0) - (row.started_ms || 0), cell: (row) => (row.ended_ms === null || row.started_ms === null ? (row.done ? '–' : 'runs') : format.duration((row.ended_ms - row.started_ms) * 1000)) },
    ],
  });
}

export const failoversPage = () => ({
  title: 'Failovers',
  every: 5000,
  load: (page) => page.ask('failovers'),
  view: (page, answer) => [
    head('Failovers', ['How long groups answered no writes when they lost their leader', answer.known_from_ms !== null && [', since ', moment(answer.known_from_ms)], '.']),
    answer.failovers.length === 0
      ? empty('No group has lost its leader in the time that is remembered.')
      : [
        h('div', { class: 'figures' }, figure(format.number(answer.failovers.length), answer.failovers.length === 1 ? 'failover' : 'failovers'), figure(ms(answer.p50_ms), 'median blackout'), figure(ms(answer.p99_ms), '99 of 100 below'), figure(ms(answer.max_ms), 'longest')),
        panel('Blackouts by length', histogram('How many blackouts lasted how long', buckets(answer.histogram))),
        panel('Failovers', list(page, {
          name: 'failovers',
          rows: answer.failovers,
          href: (row) => `/groups/${row.group}`,
          columns: [
            { name: 'When', by: (row) => row.time_ms, cell: (row) => moment(row.time_ms) },
            { name: 'Group', by: (row) => row.group, cell: (row) => groupLink(row.group) },
            { name: 'From', by: (row) => row.from_server || 0, cell: (row) => (row.from_server === null ? 'not known' : serverText(row.from_server)) },
            { name: 'To', by: (row) => row.to_server || 0, cell: (row) => serverText(row.to_server) },
            { name: 'Why', wide: true, cell: (row) => row.reason },
            { name: 'Regions', numeric: true, by: (row) => row.regions, cell: (row) => format.number(row.regions) },
            { name: 'Blackout', numeric: true, by: (row) => (row.blackout_ms === null ? Infinity : row.blackout_ms), cell: (row) => (row.blackout_ms === null ? state('lasts', false) : ms(row.blackout_ms)) },
          ],
        })),
      ],
  ],
});

const ms = (value) => (value === null ? '–' : format.duration(value * 1000));

function buckets(given) {
  let from = 0;
  return given.map(({ up_to_ms: upTo, count }) => {
    const name = upTo === null ? `over ${ms(from)}` : `< ${ms(upTo)}`;
    from = upTo;
    return [name, count];
  });
}

export const slowPage = () => ({
  title: 'Slow requests',
  every: 5000,
  load: (page) => page.ask('slow', Object.fromEntries(page.query)),
  view(page, { threshold_us: threshold, total, requests }) {
    const order = page.query.get('order') || 'newest';
    const table = page.query.get('table');
    const tables = [...new Set(requests.map((request) => request.table))].sort();
    return [
      head('Slow requests', threshold === 0 ? 'No server says from when on a request is slow.' : `${total === 0 ? 'No request' : total === 1 ? 'One request' : `${format.number(total)} requests`} took ${format.duration(threshold)} or longer since the processes started.`),
      h('div', { class: 'tools' },
        choices('Order', [['newest', 'Newest'], ['slowest', 'Slowest']], order, (value) => page.turn({ order: value })),
        (tables.length > 1 || table) && choices('Table', [['', 'All tables'], ...tables.map((name) => [name, name])], table || '', (value) => page.turn({ table: value })),
        h('div', { class: 'legend stages' }, STAGES.map((name) => h('span', { class: `stage ${stageClass(name)}` }, name)))),
      requests.length === 0 ? empty('No slow request is remembered.') : h('ol', { class: 'slow' }, requests.map(slowRequest)),
    ];
  },
});

const STAGES = ['edge', 'queue', 'commit', 'apply', 'read point', 'read', 'other'];
const stageClass = (name) => (STAGES.includes(name) ? name.replace(' ', '-') : 'other');

function slowRequest(request) {
  const whole = Math.max(request.duration_us, request.stages.reduce((sum, stage) => sum + stage.duration_us, 0)) || 1;
  return h('li', null,
    h('div', { class: 'line' }, h('strong', null, format.duration(request.duration_us)), h('span', null, request.operation, ' in ', tableLink(request.table)), moment(request.time_ms), h('span', { class: 'sizes' }, [request.rows !== null && format.count(request.rows, 'row'), request.bytes !== null && format.bytes(request.bytes)].filter(Boolean).join(', ')), h('span', null, regionLink(request.region)), h('span', null, request.server === null ? '' : serverText(request.server))),
    h('p', { class: 'cause' }, sentence(request.cause)),
    h('div', { class: 'track', role: 'img', 'aria-label': request.stages.map((stage) => `${stage.name} ${format.duration(stage.duration_us)}`).join(', ') }, request.stages.map((stage) => h('span', { class: `stage ${stageClass(stage.name)}`, title: `${stage.name} ${format.duration(stage.duration_us)}`, style: { width: `${(stage.duration_us / whole) * 100}%` } }, stage.duration_us / whole > 0.14 ? `${stage.name} ${format.duration(stage.duration_us)}` : ''))),
    h('p', { class: 'keys' }, range(request.start, request.end), request.trace && h('span', { class: 'trace' }, ' trace ', h('span', { class: 'key' }, request.trace))));
}
