// The console: which page an address shows, how it is kept up to date, and what all pages have in common.
//
// A page is `{ title, every, load(page), view(page, answer), frame(page), keys }`; the frame is what stays when a request
// is refused, such as the form that it came from. It is asked again every `every` milliseconds while
// the tab is visible, and up to three times later if showing it took long, so that a viewer costs the machine under 1 % of a
// core and still sees a dead server within seconds. An answer equal to the last one is not shown again.

import { h, morphChildren } from './dom.js';
import { listen } from './keyboard.js';
import { head, sentence } from './parts.js';
import { groupPage, groupsPage, overviewPage } from './page_cluster.js';
import { tablePage, tablesPage } from './page_tables.js';
import { heatPage, heatTablesPage } from './page_heat.js';
import { regionPage, regionsPage } from './page_regions.js';
import { eventsPage, failoversPage, proceduresPage, slowPage } from './page_history.js';
import { dataPage, dataTablesPage } from './page_data.js';
import { settingsPage } from './page_settings.js';

const ROUTES = [
  [/^\/$/, overviewPage], [/^\/tables$/, tablesPage], [/^\/tables\/([^/]+)$/, tablePage],
  [/^\/heat$/, heatTablesPage], [/^\/heat\/([^/]+)$/, heatPage], [/^\/data$/, dataTablesPage], [/^\/data\/([^/]+)$/, dataPage],
  [/^\/regions$/, regionsPage], [/^\/regions\/([^/]+)$/, regionPage], [/^\/groups$/, groupsPage], [/^\/groups\/([^/]+)$/, groupPage],
  [/^\/events$/, eventsPage], [/^\/procedures$/, proceduresPage], [/^\/slow$/, slowPage], [/^\/settings$/, settingsPage], [/^\/failovers$/, failoversPage],
];

/** Reading an answer and showing it takes at most one part in this many of the time. */
const RESTS = 300;

/** However long that takes, the page is asked again after this many of its usual pauses. */
const PAUSES_MAX = 3;

/** After this time without an answer the page says that it waits. */
const WAITING_MS = 250;

/** How soon to ask again after a failure. */
const RETRY_MS = 2000;

/** How long a request may take; the server gives up earlier. */
const REQUEST_MS = 15000;

const main = document.getElementById('main');
const live = document.getElementById('live');
let current = null;

/** A request that failed, with what to do next. */
export class Failed extends Error {
  constructor(status, message, next) {
    super(message);
    this.status = status;
    this.next = next;
  }
}

/** Asks the API; `body` makes it a change. */
async function ask(path, parameters, { body, signal } = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters || {})) if (value !== null && value !== undefined && value !== '') query.set(name, value);
  const address = `/api/v1/${path}${query.size > 0 ? `?${query}` : ''}`;
  const timeout = AbortSignal.timeout(REQUEST_MS);
  const options = { signal: signal ? AbortSignal.any([signal, timeout]) : timeout };
  if (body) Object.assign(options, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failed('unreachable', 'This process does not answer.', 'It may have stopped or be restarting; the page tries again by itself. The other processes of the cluster have consoles, too.');
  }
  const text = await response.text();
  if (response.ok) {
    const before = performance.now();
    const value = JSON.parse(text);
    return { text, value, took: performance.now() - before };
  }
  let failure = null;
  try {
    failure = JSON.parse(text).error;
  } catch (error) {
    failure = { status: 'failed', message: `The console answered with the status ${response.status}.`, next: 'Load the page again.' };
  }
  throw new Failed(failure.status, failure.message, failure.next);
}

function find(path) {
  for (const [pattern, make] of ROUTES) {
    const match = pattern.exec(path);
    if (match) return { make, parameters: match.slice(1).map(decoded) };
  }
  return { make: () => missing(path), parameters: [] };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    // Not percent-encoded UTF-8: shown as it is, and refused by the API with a sentence.
    return text;
  }
}

const missing = (path) => ({
  title: 'Not found',
  load: async () => {
    throw new Failed('not_found', `There is no page ${path}.`, 'The navigation lists the pages there are.');
  },
});

/** Shows the page of the address in the browser's bar. */
function open() {
  current?.abort.abort();
  const { make, parameters } = find(location.pathname);
  const page = {
    parameters,
    query: new URLSearchParams(location.search),
    abort: new AbortController(),
    memory: new Map(),
    answer: null,
    failure: null,
    texts: null,
    go,
    /** Something that stays between updates, made at first use. */
    kept(name, first) {
      if (!this.memory.has(name)) this.memory.set(name, first());
      return this.memory.get(name);
    },
    /** Asks the API on behalf of this page. */
    async ask(path, query) {
      const { text, value, took } = await ask(path, query, { signal: this.abort.signal });
      this.heard = `${this.heard || ''}${text}`;
      this.took += took;
      return value;
    },
    change: async (path, body) => (await ask(path, {}, { body })).value,
    show: () => show(page),
    refresh: () => load(page),
    /** Another address of the same page, with these parameters changed. */
    turn(changes, replace) {
      const query = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === '') query.delete(name);
        else query.set(name, value);
      }
      go(`${location.pathname}${query.size > 0 ? `?${query}` : ''}`, replace);
    },
  };
  Object.assign(page, make(page));
  page.path = location.pathname;
  if (current?.path === page.path) page.memory = current.memory;
  current = page;
  document.title = `${page.title} · Terrane`;
  for (const anchor of document.querySelectorAll('nav a')) {
    const target = anchor.getAttribute('href');
    const active = target === '/' ? location.pathname === '/' : location.pathname === target || location.pathname.startsWith(`${target}/`);
    if (active) anchor.setAttribute('aria-current', 'page');
    else anchor.removeAttribute('aria-current');
  }
  document.body.classList.remove('menu-open');
  setTimeout(() => page.answer === null && page.failure === null && show(page), WAITING_MS);
  load(page);
}

async function load(page) {
  clearTimeout(page.timer);
  const round = (page.round = (page.round || 0) + 1);
  const stale = () => page !== current || round !== page.round;
  page.heard = '';
  page.took = 0;
  let rest = RETRY_MS;
  try {
    const answer = await page.load(page);
    if (stale()) return;
    const again = page.failure === null && page.texts === page.heard;
    page.answer = answer;
    page.failure = null;
    page.texts = page.heard;
    const shown = again ? 0 : show(page);
    rest = page.every && Math.max(page.every, Math.min((page.took + shown) * RESTS, page.every * PAUSES_MAX));
  } catch (error) {
    if (stale() || page.abort.signal.aborted) return;
    if (!(error instanceof Failed)) throw error;
    page.failure = error;
    show(page);
    rest = isFinal(error) ? page.every : RETRY_MS;
  }
  if (rest > 0 && !document.hidden) page.timer = setTimeout(() => load(page), rest);
}

/** Whether asking again answers the same, until someone changes something. */
const isFinal = (failure) => failure.status === 'bad_input' || failure.status === 'not_found';

/** Shows the page's answer or failure; tells how many milliseconds that took. */
function show(page) {
  if (page !== current) return 0;
  const before = performance.now();
  const content = h('div', null);
  if (page.answer !== null) {
    if (page.failure) content.append(notice(page.failure));
    const view = page.view(page, page.answer);
    content.append(...[view].flat(Infinity).filter(Boolean));
  } else if (page.failure) {
    if (page.frame) content.append(...[page.frame(page)].flat(Infinity).filter(Boolean), failureText(page.failure));
    else content.append(failureHead(page.failure), failureText(page.failure));
  } else {
    content.append(head(page.title), h('p', { class: 'empty' }, 'Waiting for the cluster …'));
  }
  morphChildren(main, content);
  main.dataset.page = page.title;
  main.dataset.shown = String(Number(main.dataset.shown || 0) + 1);
  main.dataset.state = page.failure ? 'failed' : page.answer === null ? 'waiting' : 'shown';
  return performance.now() - before;
}

const FAILURES = { not_found: 'Not found', bad_input: 'That does not work' };
const failureHead = (failure) => head(FAILURES[failure.status] || 'Not available now');
const failureText = (failure) => h('section', { class: 'failure' }, h('p', null, sentence(failure.message)), failure.next && h('p', null, sentence(failure.next)));
const notice = (failure) => h('section', { class: 'failure notice', role: 'alert' }, h('p', null, 'Not up to date. ', sentence(failure.message), ' ', sentence(failure.next || '')));

function go(address, replace) {
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  const same = current?.path === location.pathname;
  open();
  if (!same) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
    live.textContent = document.title;
  }
}

document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const anchor = event.target.closest('a[href]');
  if (anchor) {
    const target = new URL(anchor.href, location.href);
    if (target.origin !== location.origin || anchor.target || target.pathname.startsWith('/api/') || target.hash === '#main') return;
    event.preventDefault();
    go(target.pathname + target.search + target.hash);
    return;
  }
  const line = event.target.closest('tr[data-href]');
  if (line && !event.target.closest('button, input, select') && String(getSelection()) === '') go(line.dataset.href);
});
window.addEventListener('popstate', open);
document.addEventListener('visibilitychange', () => {
  if (document.hidden) clearTimeout(current?.timer);
  else if (current?.every || (current?.failure && !isFinal(current.failure))) load(current);
});

// Light, dark, or what the system prefers.
const themes = ['system', 'light', 'dark'];
const themeButton = document.getElementById('theme');
function themed() {
  themeButton.textContent = `Theme: ${document.documentElement.dataset.theme || 'system'}`;
  for (const map of document.querySelectorAll('.heatmap')) map.paint();
}
function nextTheme() {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme || 'system') + 1) % themes.length];
  if (next === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem('terrane.theme', next);
  } catch (error) {
    live.textContent = 'This browser forbids storage: the choice ends with the page.';
  }
  themed();
}
themeButton.onclick = nextTheme;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', themed);
themed();

const menu = document.getElementById('menu');
menu.onclick = () => menu.setAttribute('aria-expanded', String(document.body.classList.toggle('menu-open')));

listen({ page: () => current, go, theme: nextTheme });
open();
