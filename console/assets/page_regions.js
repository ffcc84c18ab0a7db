// All regions, and one region.

import { loadCharts } from './chart.js';
import { h } from './dom.js';
import * as format from './format.js';
import { advice, bar, empty, facts, groupLink, head, link, list, panel, range, regionLink, serverText, state, tableLink } from './parts.js';
import { eventList } from './page_history.js';

export const regionsPage = () => ({
  title: 'Regions',
  every: 5000,
  load: (page) => page.ask('regions', Object.fromEntries(page.query)),
  view: (page, { regions }) => {
    const [server, group, table] = ['server', 'group', 'table'].map((name) => page.query.get(name));
    const of = [table && ` of ${table}`, server && ` on server ${server}`, group && ` in group ${group}`].filter(Boolean).join('');
    const kept = page.kept('filter', () => ({ text: '' }));
    const matches = (region) => `${region.table} ${region.id} ${region.start.text} ${region.end.text} ${region.state} group ${region.group} ${region.leader_address || ''}`.toLowerCase().includes(kept.text);
    const shown = kept.text ? regions.filter(matches) : regions;
    return [
      head(`Regions${of}`, format.count(shown.length, 'region'), of && link('/regions', 'All regions')),
      h('div', { class: 'form' }, h('label', null, 'Show those with', h('input', { type: 'search', placeholder: 'table, id, key, state, address', on: { input: (event) => ((kept.text = event.target.value.toLowerCase()), page.show()) } }))),
      regionList(page, shown),
    ];
  },
});

/** A list of regions, without the column `but` where that is the same for all. */
export function regionList(page, regions, but) {
  if (regions.length === 0) return empty('No regions.');
  const busiest = Math.max(...regions.map((region) => Math.max(region.load.reads_per_second, region.load.writes_per_second)));
  return list(page, {
    name: 'regions',
    rows: regions,
    href: (region) => `/regions/${region.id}`,
    columns: [
      { name: 'Region', by: (region) => region.id, cell: (region) => regionLink(region.id) },
      { name: 'Table', by: (region) => region.table, cell: (region) => tableLink(region.table) },
      { name: 'Keys', wide: true, by: (region) => region.start.bytes, cell: (region) => range(region.start, region.end) },
      { name: 'State', by: (region) => region.state, cell: (region) => state(region.state, region.healthy) },
      { name: 'Leader', by: (region) => region.leader || 0, cell: (region) => serverText(region.leader, region.leader_address) },
      { name: 'Group', by: (region) => region.group, cell: (region) => groupLink(region.group) },
      { name: 'Data', numeric: true, by: (region) => region.bytes, cell: (region) => format.bytes(region.bytes) },
      { name: 'Reads', numeric: true, by: (region) => region.load.reads_per_second, cell: (region) => bar(region.load.reads_per_second, busiest, format.rate(region.load.reads_per_second)) },
      { name: 'Writes', numeric: true, by: (region) => region.load.writes_per_second, cell: (region) => bar(region.load.writes_per_second, busiest, format.rate(region.load.writes_per_second)) },
    ].filter((column) => column.name !== but),
  });
}

export const regionPage = ({ parameters: [id] }) => ({
  title: `Region ${id}`,
  every: 5000,
  load: (page) => page.ask(`regions/${encodeURIComponent(id)}`),
  view: (page, { region, members, facts: known, history, events, advice: given }) => {
    const table = encodeURIComponent(region.table);
    const heat = new URLSearchParams(Object.entries({ start: region.start.bytes, end: region.end.bytes }).filter(([, value]) => value));
    return [
      head(`Region ${region.id}`, ['of ', tableLink(region.table), ', ', groupLink(region.group), ', hosted by ', serverText(region.leader, region.leader_address)], link(`/heat/${table}?${heat}`, 'Heat map'), link(`/data/${table}${region.start.bytes ? `?${new URLSearchParams({ start_bytes: region.start.bytes })}` : ''}`, 'Browse rows')),
      given.length > 0 && h('section', { class: 'panel' }, given.map(advice)),
      facts([['First key', h('span', { class: 'key' }, format.startText(region.start))], ['Up to', h('span', { class: 'key' }, format.endText(region.end))], ['State', state(region.state, region.healthy)], ['Epoch', format.number(region.epoch)], ['Data', format.bytes(region.bytes)], ['Reads', format.rate(region.load.reads_per_second)], ['Writes', format.rate(region.load.writes_per_second)], ...known.map(([name, value]) => [format.capital(name), value])]),
      panel('Load', loadCharts(history)),
      panel('Members of its group', memberList(page, members)),
      panel('Events', eventList(events)),
    ];
  },
});

/** The members of a group. */
export function memberList(page, members) {
  return list(page, {
    name: 'members',
    rows: members,
    columns: [
      { name: 'Server', cell: (member) => link(`/regions?server=${member.server}`, `server ${member.server}`) },
      { name: 'Address', cell: (member) => h('span', { class: 'key' }, member.address) },
      { name: 'Role', cell: (member) => member.role },
      { name: 'State', cell: (member) => state(member.healthy ? 'follows' : 'does not follow', member.healthy) },
      { name: 'Behind', numeric: true, cell: (member) => (member.behind === null ? '–' : format.count(member.behind, 'entry', 'entries')) },
      { name: 'Replica', numeric: true, cell: (member) => member.replica },
    ],
  });
}
