// Settings, of which some change while the cluster runs.

import { h } from './dom.js';
import * as format from './format.js';
import { choices, empty, head, sentence } from './parts.js';

export const settingsPage = () => ({
  title: 'Settings',
  every: 10000,
  load: (page) => page.ask('settings'),
  view(page, { settings }) {
    const kept = page.kept('settings', () => ({ text: '', which: 'all', open: null, said: new Map() }));
    const matches = (setting) => (kept.which === 'all' || (kept.which === 'live' ? setting.live : setting.value !== setting.default)) && `${setting.name} ${setting.help} ${setting.value}`.toLowerCase().includes(kept.text);
    const shown = settings.filter(matches);
    return [
      head('Settings', 'Those marked live change at once, without a restart. The others are of the process whose console this is, read at its start.'),
      h('div', { class: 'form' }, h('label', null, 'Show those with', h('input', { type: 'search', placeholder: 'name, value or purpose', on: { input: (event) => ((kept.text = event.target.value.toLowerCase()), page.show()) } })),
        choices('Which', [['all', 'All'], ['live', 'Live'], ['changed', 'Not default']], kept.which, (value) => ((kept.which = value), page.show()))),
      shown.length === 0 ? empty('No setting matches.') : h('ul', { class: 'settings' }, shown.map((setting) => one(page, setting, kept))),
      h('p', { class: 'note' }, format.count(shown.length, 'setting')),
    ];
  },
});

function one(page, setting, kept) {
  const editing = kept.open === setting.name;
  const said = kept.said.get(setting.name);
  const save = async (value) => {
    try {
      const now = await page.change('settings', { name: setting.name, value });
      Object.assign(setting, now);
      kept.open = null;
      kept.said.set(setting.name, { good: true, text: `Set to ${now.value}.` });
    } catch (error) {
      kept.said.set(setting.name, { good: false, text: `${error.message} ${error.next || ''}` });
    }
    page.show();
    page.refresh();
  };
  const submit = (event) => {
    event.preventDefault();
    save(event.target.elements.value.value.trim());
  };
  const edit = () => {
    kept.open = setting.name;
    kept.said.delete(setting.name);
    page.show();
    document.querySelector('.settings form input, .settings form select')?.focus();
  };
  const field = setting.choices.length > 0
    ? h('select', { name: 'value', 'aria-label': setting.name }, setting.choices.map((value) => h('option', { value, selected: value === setting.value }, value)))
    : h('input', { name: 'value', value: setting.value, 'aria-label': setting.name, autocomplete: 'off', spellcheck: 'false' });
  return h('li', { id: setting.name, class: location.hash === `#${encodeURIComponent(setting.name)}` ? 'meant' : null },
    h('div', { class: 'entry' },
      h('div', { class: 'about' }, h('p', { class: 'key' }, setting.name, setting.live && h('span', { class: 'tag live' }, 'live')), h('p', { class: 'help' }, sentence(setting.help))),
      h('div', { class: 'now' },
        editing
          ? h('form', { on: { submit } }, field, h('button', { class: 'main' }, 'Save'), setting.default !== null && setting.value !== setting.default && h('button', { type: 'button', on: { click: () => save(null) } }, 'Default'), h('button', { type: 'button', class: 'quiet', on: { click: () => ((kept.open = null), page.show()) } }, 'Cancel'))
          : h('p', null, h('span', { class: 'key value' }, setting.value), setting.live && h('button', { class: 'edit', on: { click: edit } }, 'Change')),
        h('p', { class: 'origin' }, setting.origin, setting.default && setting.value !== setting.default && `, default ${setting.default}`))),
    said && h('p', { class: said.good ? 'said' : 'said bad', role: 'status' }, said.text));
}
