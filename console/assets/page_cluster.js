// The overview, and the log groups.

import { loadCharts } from './chart.js';
import { h } from './dom.js';
import * as format from './format.js';
import { bar, empty, facts, figure, groupLink, head, link, list, panel, placeLink, sentence, serverText, state } from './parts.js';
import { memberList, regionList } from './page_regions.js';
import { eventList } from './page_history.js';

export const overviewPage = () => ({
  title: 'Overview',
  every: 3000,
  load: (page) => page.ask('overview'),
  view: overview,
});

const SEVERITIES = { critical: 'Critical', warning: 'Warning', note: 'Note' };

function overview(page, cluster) {
  // A cluster without a name has an id, which is no title.
  const isId = /^[0-9a-f-]{32,36}$/.test(cluster.cluster);
  return [
    head(isId ? 'Overview' : cluster.cluster, `${isId ? `Cluster ${cluster.cluster.slice(0, 8)}, ` : ''}Terrane ${cluster.version}, seen from ${cluster.seen_from} at ${format.clock(cluster.time_ms)}`),
    problems(cluster.problems),
    h('div', { class: 'figures' },
      figure(format.number(cluster.servers.length), cluster.servers.length === 1 ? 'server' : 'servers'),
      figure(format.number(cluster.tables), 'tables', '/tables'),
      figure(format.number(cluster.regions), 'regions', '/regions'),
      figure(format.number(cluster.groups), 'log groups', '/groups'),
      figure(format.bytes(cluster.bytes), 'stored'),
      figure(format.rate(cluster.load.reads_per_second), 'rows read'),
      figure(format.rate(cluster.load.writes_per_second), 'rows written'),
      figure(format.byteRate(cluster.load.bytes_per_second), 'in and out')),
    panel('Load', loadCharts(cluster.history)),
    panel('Servers', servers(page, cluster.servers)),
    panel('Masters', list(page, {
      name: 'masters',
      rows: cluster.masters,
      columns: [
        { name: 'Address', cell: (master) => h('span', { class: 'key' }, master.address) },
        { name: 'Role', cell: (master) => (master.leader ? 'leader' : 'follower') },
        { name: 'State', cell: (master) => (master.reachable === null ? 'not known here' : state(master.reachable ? 'answers' : 'does not answer', master.reachable)) },
      ],
    })),
  ];
}

function problems(found) {
  if (found.length === 0) return h('section', { class: 'problems fine' }, h('p', null, h('strong', null, 'All is well.'), ' Every server answers and every group has a leader and all its members.'));
  const one = (problem) => h('li', { class: problem.severity }, h('span', { class: 'tag' }, SEVERITIES[problem.severity]), h('div', null, h('p', { class: 'what' }, sentence(problem.what), problem.place && [' ', h('span', { class: 'place' }, placeLink(problem.place))]), h('p', { class: 'next' }, sentence(problem.next))));
  return h('section', { class: 'problems', 'aria-label': 'What is wrong' }, h('ul', null, found.map(one)));
}

function servers(page, rows) {
  if (rows.length === 0) return empty('No region server has joined. Start one with ', sentence('`terrane server --masters HOST:PORT`'), '.');
  const known = (field) => rows.some((server) => server[field] !== null);
  const busiest = Math.max(...rows.map((server) => server.load.reads_per_second + server.load.writes_per_second));
  return list(page, {
    name: 'servers',
    rows,
    href: (server) => `/regions?server=${server.id}`,
    columns: [
      { name: 'Server', by: (server) => server.id, cell: (server) => link(`/regions?server=${server.id}`, `server ${server.id}`) },
      { name: 'Address', by: (server) => server.address, cell: (server) => (server.console ? h('a', { class: 'key', href: `//${server.console}/`, target: '_blank', rel: 'noreferrer', title: 'Its own console' }, server.address) : h('span', { class: 'key' }, server.address)) },
      known('zone') && { name: 'Zone', by: (server) => server.zone || '', cell: (server) => server.zone || '–' },
      { name: 'State', by: (server) => server.state, cell: (server) => state(server.state, server.healthy) },
      { name: 'Leads', numeric: true, by: (server) => server.leaders, cell: (server) => format.number(server.leaders) },
      { name: 'Replicas', numeric: true, by: (server) => server.replicas, cell: (server) => format.number(server.replicas) },
      { name: 'Regions', numeric: true, by: (server) => server.regions, cell: (server) => format.number(server.regions) },
      known('bytes') && { name: 'Data', numeric: true, by: (server) => server.bytes || 0, cell: (server) => format.bytes(server.bytes) },
      known('disk_free_bytes') && { name: 'Disk free', numeric: true, by: (server) => server.disk_free_bytes || 0, cell: (server) => format.bytes(server.disk_free_bytes) },
      { name: 'Reads', numeric: true, by: (server) => server.load.reads_per_second, cell: (server) => bar(server.load.reads_per_second, busiest, format.rate(server.load.reads_per_second)) },
      { name: 'Writes', numeric: true, by: (server) => server.load.writes_per_second, cell: (server) => bar(server.load.writes_per_second, busiest, format.rate(server.load.writes_per_second)) },
    ].filter(Boolean),
  });
}

export const groupsPage = () => ({
  title: 'Log groups',
  every: 5000,
  load: (page) => page.ask('groups'),
  view: (page, { groups }) => [
    head('Log groups', 'A log group is one Raft group; its leader hosts the regions whose writes it orders.'),
    groups.length === 0 ? empty('There are no groups yet: the first table makes them.') : list(page, {
      name: 'groups',
      rows: groups,
      href: (group) => `/groups/${group.id}`,
      columns: [
        { name: 'Group', by: (group) => group.id, cell: (group) => groupLink(group.id) },
        { name: 'State', by: (group) => group.state, cell: (group) => state(group.state, group.healthy) },
        { name: 'Leader', by: (group) => group.leader || 0, cell: (group) => serverText(group.leader, group.leader_address) },
        { name: 'Members', cell: (group) => group.members.map((member) => h('span', { class: member.healthy ? 'chip' : 'chip bad', title: `${member.address}: ${member.role}${member.healthy ? '' : ', does not follow'}` }, String(member.server))) },
        { name: 'Term', numeric: true, by: (group) => group.term || 0, cell: (group) => (group.term === null ? '–' : format.number(group.term)) },
        { name: 'Regions', numeric: true, by: (group) => group.regions, cell: (group) => format.number(group.regions) },
        { name: 'Data', numeric: true, by: (group) => group.bytes, cell: (group) => format.bytes(group.bytes) },
        { name: 'Reads', numeric: true, by: (group) => group.load.reads_per_second, cell: (group) => format.rate(group.load.reads_per_second) },
        { name: 'Writes', numeric: true, by: (group) => group.load.writes_per_second, cell: (group) => format.rate(group.load.writes_per_second) },
      ],
    }),
  ],
});

export const groupPage = ({ parameters: [id] }) => ({
  title: `Group ${id}`,
  every: 5000,
  load: (page) => page.ask(`groups/${encodeURIComponent(id)}`),
  view: (page, { group, facts: known, regions, events }) => [
    head(`Group ${group.id}`, ['Led by ', serverText(group.leader, group.leader_address), ', ', format.count(group.regions, 'region'), ', ', format.bytes(group.bytes)]),
    facts([['State', state(group.state, group.healthy)], ['Term', group.term === null ? '–' : format.number(group.term)], ['Reads', format.rate(group.load.reads_per_second)], ['Writes', format.rate(group.load.writes_per_second)], ...known.map(([name, value]) => [format.capital(name), value])]),
    panel('Members', memberList(page, group.members)),
    panel('Regions', regionList(page, regions, 'Group')),
    panel('Events', eventList(events)),
  ],
});
