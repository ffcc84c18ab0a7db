// The keyboard: `g` and a letter goes to a page, `j` and `k` move in a list, `?` shows all shortcuts.

import { h } from './dom.js';

const GO_PATIENCE_MS = 1500;

const SHORTCUTS = [
  ['g o', 'Overview'], ['g t', 'Tables'], ['g h', 'Heat map'], ['g d', 'Browse rows'], ['g r', 'Regions'], ['g l', 'Log groups'],
  ['g e', 'Events'], ['g f', 'Failovers'], ['g s', 'Slow requests'], ['g c', 'Settings'],
  ['j k', 'Next and previous line of a list'], ['Enter', 'Open the line'], ['/', 'Go to the first field of the page'],
  ['n p', 'Next and previous page of rows'], ['Esc', 'Leave a field; zoom out of a heat map'], ['m', 'Light, dark or the system’s colours'], ['?', 'This help'],
];

/** Listens for shortcuts. `page()` is the page shown now, `go(address)` leads to another. */
export function listen({ page, go, theme }) {
  const dialog = document.getElementById('keys');
  dialog.append(
    h('form', { method: 'dialog' }, h('h2', null, 'Keys'), h('button', { class: 'quiet', 'aria-label': 'Close' }, 'Close')),
    h('dl', { class: 'shortcuts' }, SHORTCUTS.map(([keys, text]) => h('div', null, h('dt', null, keys.split(' ').map((key) => h('kbd', null, key))), h('dd', null, text)))),
  );
  const help = () => (dialog.open ? dialog.close() : dialog.showModal());
  document.getElementById('help').onclick = help;
  dialog.onclick = (event) => event.target === dialog && dialog.close();

  let going = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest('input, select, textarea');
    if (event.key === 'Escape') {
      if (typing) typing.blur();
      else if (!dialog.open) page().keys?.Escape?.();
      return;
    }
    if (typing || (dialog.open && event.key !== '?')) return;
    if (Date.now() < going) {
      going = 0;
      const target = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (target) {
        event.preventDefault();
        go(target.getAttribute('href'));
        return;
      }
    }
    const act = { g: () => (going = Date.now() + GO_PATIENCE_MS), '?': help, m: theme, j: () => move(1), k: () => move(-1), '/': field, Enter: () => enter(event) }[event.key] || page().keys?.[event.key];
    if (!act) return;
    if (event.key !== 'Enter') event.preventDefault();
    act();
  });

  function move(by) {
    const lines = [...document.querySelectorAll('main tr[data-href]')];
    if (lines.length === 0) return;
    const at = lines.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : lines.length - 1) : Math.min(Math.max(at + by, 0), lines.length - 1);
    lines[next].focus();
    lines[next].scrollIntoView({ block: 'nearest' });
  }

  function field() {
    document.querySelector('main input, main select')?.focus();
  }

  function enter(event) {
    if (event.target.dataset?.href) go(event.target.dataset.href);
  }
}
