// Shows tables from TableData in page.h, and downloads their CSV.

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], {type: 'text/csv'}));
  const link = element('a', {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// `table`: {id, title, caption, notes, columns: [{head, class}], rows: texts, csv}.
function addTable(parent, {id, title, caption, notes, columns, rows, csv}) {
  const button = element('button', {type: 'button', title: `Download ${id}.csv`}, 'CSV');
  button.addEventListener('click', () => download(`${id}.csv`, csv.replace(/"[^"]*"|\n/g, (part) => part === '\n' ? '\r\n' : part)));
  const cell = (name, text, i) => element(name, {class: columns[i].class || null}, text);
  const head = element('tr', {}, ...columns.map((column, i) => cell('th', column.head, i)));
  const body = rows.map((row) => element('tr', {}, ...row.map((text, i) => cell('td', unbroken(text), i))));
  parent.append(element('div', {class: 'table-title'}, element('h3', {id}, title), button));
  for (const line of caption.split('\n').filter(Boolean)) parent.append(element('p', {class: 'caption'}, ...prose(line)));
  parent.append(element('div', {class: 'table'}, element('table', {}, element('thead', {}, head), element('tbody', {}, ...body))));
  const lines = notes.split('\n').filter(Boolean);
  if (lines.length > 0) parent.append(element('ul', {class: 'remarks'}, ...lines.map((line) => element('li', {}, ...prose(line)))));
}

// Adds the tables whose ids begin with one of `names`, in the order of the names.
function addTables(parent, tables, ...names) {
  for (const name of names) {
    for (const table of tables.filter(({id}) => id.startsWith(name))) addTable(parent, table);
  }
}
