// Creates elements of the page. Strings become text nodes, so markup in them has no effect.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Returns a sentence as children of an element, with flags in code elements.
function prose(text) {
  return text.split(/(--[a-z][a-z_]*(?:=[^\s,;)]+)?)/).map(
      (part, i) => (i % 2 === 1 ? element('code', {class: 'flag'}, part) : unbroken(part)));
}

// Adds a section with a heading, which the page's contents list, and a lead paragraph.
function section(id, title, lead) {
  const made = element('section', {id}, element('h2', {}, title));
  if (lead) made.append(element('p', {class: 'lead'}, lead));
  document.getElementById('report').append(made);
  return made;
}

// Adds a line with the reason why there is no chart, and the command that would provide its data.
function missing(parent, why, command) {
  const line = element('p', {class: 'missing'}, why);
  if (command) line.append(' ', element('code', {}, command));
  parent.append(line);
}

// Returns a list that is collapsed at first.
function folded(title, texts) {
  return element('details', {}, element('summary', {}, title),
                 element('ul', {}, ...texts.map((text) => element('li', {}, text))));
}

let controlCount = 0;

// Adds buttons of which exactly one is pressed; a press calls `change` with the option's index.
function choice(parent, label, options, change) {
  const name = `control-${++controlCount}`;
  const buttons = options.map((option, place) => {
    const input = element('input', {type: 'radio', name, id: `${name}-${place}`});
    input.checked = place === 0;
    input.addEventListener('change', () => change(place));
    return element('span', {}, input, element('label', {for: input.id}, option));
  });
  parent.append(element('span', {class: 'choice', role: 'radiogroup', 'aria-label': label}, ...buttons));
}

function select(parent, label, options, chosen, change) {
  const id = `control-${++controlCount}`;
  const list = element('select', {id}, ...options.map((option) => element('option', {}, option)));
  list.selectedIndex = chosen;
  list.addEventListener('change', () => change(list.selectedIndex));
  parent.append(element('span', {class: 'select'}, element('label', {for: id}, label), list));
}

function checkbox(parent, label, checked, change) {
  const id = `control-${++controlCount}`;
  const box = element('input', {type: 'checkbox', id});
  box.checked = checked;
  box.addEventListener('change', () => change(box.checked));
  parent.append(element('span', {class: 'checkbox'}, box, element('label', {for: id}, label)));
}

function controls(parent) {
  const made = element('div', {class: 'controls'});
  parent.append(made);
  return made;
}
