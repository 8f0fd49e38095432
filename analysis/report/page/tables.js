// Tables, and their download as CSV: rounded on the page, whole in the file.

// A column of a table: {head, show(row), file: [[name, value(row)], ...], class,
// hidden}. The file may hold more columns than the page: an interval has two
// ends, and hidden ones are in the file alone.

function textColumn(head, name, value, kind = null) {
  return {head, show: (row) => value(row) ?? '', file: [[name, value]], class: kind};
}

function numberColumn(head, name, value, show = digits) {
  const shown = (row) => (value(row) === null ? '' : show(value(row)));
  return {head, show: shown, file: [[name, value]], class: 'number'};
}

function intervalColumn(name, value, show) {
  const end = (at) => (row) => endOf(value(row), at);
  return {
    head: '95 %',
    show: (row) => (value(row) === null ? '' : interval(value(row), show)),
    file: [[`${name}_low`, end(0)], [`${name}_high`, end(1)]],
    class: 'number',
  };
}

// RFC 4180; a text that a spreadsheet would take for a formula gets a quote.
function csvField(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = String(value).replace(/^([=+@\t\r])/, '\'$1');
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

function csv(columns, rows) {
  const fields = columns.flatMap((column) => column.file);
  const lines = [fields.map(([name]) => csvField(name))];
  for (const row of rows) lines.push(fields.map(([, value]) => csvField(value(row))));
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], {type: 'text/csv'}));
  const link = element('a', {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function table(parent, id, title, columns, rows) {
  if (rows.length === 0) return;
  const button = element('button', {type: 'button', title: `Download ${id}.csv`}, 'CSV');
  button.addEventListener('click', () => download(`${id}.csv`, csv(columns, rows)));
  const cell = (name, text, column) => element(name, {class: column.class}, text);
  const shown = columns.filter((column) => !column.hidden);
  const head = element('tr', {}, ...shown.map((column) => cell('th', column.head, column)));
  const body = rows.map((row) => element('tr', {}, ...shown.map((column) => cell('td', column.show(row), column))));
  parent.append(
      element('div', {class: 'table-title'}, element('h3', {id}, title), button),
      element('div', {class: 'table'}, element('table', {}, element('thead', {}, head), element('tbody', {}, ...body))));
}
