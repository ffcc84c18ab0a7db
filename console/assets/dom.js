// Elements from values, and the update of shown elements in place. Text becomes text nodes, never markup: whatever a
// cell holds, it cannot become an element.

const SVG = 'http://www.w3.org/2000/svg';

/** Makes an element. Properties: `on` (handlers by event), `style` (by CSS name), `data`, `keep`, or attributes. */
export function h(tag, properties, ...children) {
  return make(document.createElement(tag), properties, children);
}

/** Makes an SVG element. */
export function svg(tag, properties, ...children) {
  return make(document.createElementNS(SVG, tag), properties, children);
}

function make(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') {
      element.handlers = value;
      for (const [event, handler] of Object.entries(value)) element['on' + event] = handler;
    } else if (name === 'style') {
      for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    } else if (name === 'data') {
      Object.assign(element.dataset, value);
    } else if (name === 'keep') {
      element.keep = value;
    } else if (name === 'value') {
      element.value = element.given = value;
    } else {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

/**
 * Makes `shown` equal to `wanted`, changing as little as possible, so that focus, selection and scrolling stay. An element
 * with `keep` is a widget of its own: it stays as it is and takes the new one's `state`.
 */
export function morph(shown, wanted) {
  if (shown.nodeType !== wanted.nodeType || shown.nodeName !== wanted.nodeName || shown.keep?.name !== wanted.keep?.name) {
    shown.replaceWith(wanted);
    return;
  }
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    if (shown.nodeValue !== wanted.nodeValue) shown.nodeValue = wanted.nodeValue;
    return;
  }
  if (shown.keep) {
    shown.keep.update(wanted.keep.state);
    return;
  }
  morphProperties(shown, wanted);
  morphChildren(shown, wanted);
}

function morphProperties(shown, wanted) {
  for (const { name, value } of [...wanted.attributes]) {
    if (name !== 'style' && shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
  for (const { name } of [...shown.attributes]) {
    if (name !== 'style' && name !== 'open' && name !== 'data-at' && !wanted.hasAttribute(name)) shown.removeAttribute(name);
  }
  if (shown.style.cssText !== wanted.style.cssText) shown.style.cssText = wanted.style.cssText;
  for (const event of Object.keys(shown.handlers || {})) shown['on' + event] = null;
  for (const [event, handler] of Object.entries(wanted.handlers || {})) shown['on' + event] = handler;
  shown.handlers = wanted.handlers;
  if (wanted.given !== undefined && wanted.given !== shown.given) {
    shown.value = shown.given = wanted.given;
  }
}

/** Makes the children of `shown` those of `wanted`. */
export function morphChildren(shown, wanted) {
  const news = [...wanted.childNodes];
  const olds = [...shown.childNodes];
  news.forEach((child, at) => (at < olds.length ? morph(olds[at], child) : shown.append(child)));
  for (const extra of olds.slice(news.length)) extra.remove();
}
