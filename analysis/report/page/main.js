// The sections of the report, from top to bottom.

const cellOf = (row) => study.cells[row.cell];

function addFindings() {
  const part = element('section', {id: 'findings'});
  document.getElementById('report').append(part);
  for (const finding of study.findings) {
    const paragraphs = finding.text.split('\n').filter(Boolean).map((text) => element('p', {}, ...prose(text)));
    part.append(element('article', {}, element('h2', {}, finding.title), element('div', {}, ...paragraphs)));
  }
  if (study.findings.length === 0) {
    missing(part, 'The records have too little data for findings: the notes say what is missing.');
  }
}

function addContents() {
  const links = [...document.querySelectorAll('main > section > h2')].map(
      (heading) => element('a', {href: `#${heading.parentElement.id}`}, heading.textContent));
  document.getElementById('findings').after(element('nav', {'aria-label': 'Contents'}, ...links));
}

function machineText(machine) {
  const memory = machine.memory_bytes > 0 ? `, ${bytes(machine.memory_bytes)}` : '';
  return `${machine.hostname}: ${plural(machine.cores, 'core')} of ${machine.cpu_model || 'a CPU'}${memory}; ` +
      `ranks on ${machine.devices.join(', ')}`;
}

function versionText(versions) {
  return Object.entries(versions).filter(([, version]) => version).map(([name, version]) => `${name} ${version}`).join(', ');
}

function addNotes() {
  const part = section('notes', 'Notes', '');
  if (study.notes.length === 0) {
    part.append(element('p', {}, 'Nothing was refused or left out.'));
    return;
  }
  part.append(element('ul', {}, ...study.notes.map((note) => element('li', {}, ...prose(note)))));
}

function addOrigin() {
  const part = section('origin', 'How this was made', '');
  const {machines, versions, code, threads_per_rank, flags} = study.origin;
  const list = element('dl');
  const say = (name, texts) => {
    const known = texts.filter(Boolean);
    if (known.length > 0) list.append(element('dt', {}, name), ...known.map((text) => element('dd', {}, text)));
  };
  say('machines', machines.map(machineText));
  say('versions', versions.map(versionText));
  say('code', code);
  say('threads per rank', threads_per_rank.map(String));
  say('repetitions', [[...new Set(study.cells.map((cell) => cell.runs))].join(', ')]);
  if (study.command) list.append(element('dt', {}, 'command for this report'), element('dd', {}, element('code', {}, study.command)));
  part.append(list);
  const shared = Object.entries(flags);
  if (shared.length > 0) {
    part.append(element('details', {}, element('summary', {}, `${plural(shared.length, 'flag')} that all runs share`),
        element('p', {class: 'flags'}, ...shared.map(([name, value]) => element('code', {}, `--${name}=${value} `)))));
  }
}

function subtitle() {
  const {machines, versions} = study.origin;
  const sizes = [...new Set(study.cells.map((cell) => cell.ranks))].sort((a, b) => a - b);
  const runs = study.cells.reduce((sum, cell) => sum + cell.runs, 0);
  const parts = [];
  if (runs > 0) parts.push(`${plural(runs, 'run')} on ${sizes.join(', ')} ${sizes.at(-1) === 1 ? 'rank' : 'ranks'}`);
  for (const {cores, cpu_model} of machines) if (cores > 0) parts.push(`${plural(cores, 'core')} of ${cpu_model || 'a CPU'}`);
  const gpus = new Set(machines.flatMap((machine) => machine.devices.filter((device) => device !== 'cpu')
      .map((device) => `${machine.hostname} ${device}`)));
  if (gpus.size > 0) parts.push(plural(gpus.size, 'GPU'));
  for (const version of versions) if (version.torch) parts.push(`LibTorch ${version.torch}`);
  document.getElementById('subtitle').textContent = [...new Set(parts)].join(' · ');
}

function addFigures() {
  const part = section('tables', 'Tables', 'All tables of the terminal, and more. Each downloads as CSV, unrounded, in seconds, bytes and shares of 1.');
  addTables(part, study.tables, 'scaling-', 'law-', 'ledger-', 'rank-ledger-', 'first-device-', 'communication-', 'waterfall-', 'ablation-');
  if (!study.tables.some(({id}) => id === 'ablation-table')) {
    missing(part, 'No configuration was also run without communication. To add such runs:',
            './bazelw run //:study -- --ablations=3');
  }
  addTables(part, study.tables, 'pipeline-', 'cost-');
  const calls = study.tables.find(({id}) => id === 'call-table');
  if (calls) {
    const details = element('details', {}, element('summary', {}, `${plural(calls.rows.length, 'row')} of the communication benchmark`));
    part.append(details);
    addTable(details, calls);
  }
  addTables(part, study.tables, 'prediction-', 'learning-', 'staleness-');
}

// The functions that add the sections, by section id.
const parts = {
  findings: addFindings,
  scaling: addScaling,
  layouts: addLayouts,
  ledger: addLedger,
  waterfall: addWaterfall,
  memory: addMemory,
  roofline: addRoofline,
  network: addNetworks,
  timelines: addTimelines,
  predictions: addPredictions,
  losses: addLosses,
  tables: addFigures,
  notes: addNotes,
  origin: addOrigin,
};

// Shows all parts, or those in the URL: report.html?show=findings,waterfall
async function show() {
  subtitle();
  const wanted = new URLSearchParams(location.search).get('show');
  const names = Object.keys(parts).filter((name) => wanted === null || wanted.split(',').includes(name));
  for (const name of names) parts[name]();
  if (wanted === null) addContents();
  await showCharts();
}

const study = JSON.parse(document.getElementById('report-data').textContent);
const trainers = [...new Set(study.cells.map((cell) => cell.trainer))];
show().then(() => report(true), (error) => {
  pageErrors.push(String(error));
  report(false);
});
