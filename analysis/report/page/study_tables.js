// The figures behind the pictures.

const inMs = (seconds) => digits(seconds * 1e3);
const inUs = (seconds) => digits(seconds * 1e6);
const inNs = (seconds) => digits(seconds * 1e9);
const whole = (count) => String(count);
const cellOf = (row) => study.cells[row.cell];

// 'tokens/s', as tokens_per_second in the file.
function rateColumn(unit, value) {
  return numberColumn(unit, unit.replace('/s', '_per_second'), value, (n) => digits(n, 4));
}

function scalingTable(part) {
  const base = (row) => (row.base === null ? null : study.cells[row.base].label);
  const figure = (key) => (row) => (row.efficiency === null ? null : row.efficiency[key]);
  const remarks = (row) => [...cellOf(row).marks, row.refusal, figure('warning')(row)].filter(Boolean).join('; ');
  const bases = new Set(study.rows.map(base).filter(Boolean));
  table(part, 'scaling-table', 'Scaling', [
    textColumn('trainer', 'trainer', (row) => cellOf(row).trainer),
    textColumn('scaling', 'scaling', (row) => row.scaling),
    numberColumn('ranks', 'ranks', (row) => cellOf(row).ranks, whole),
    numberColumn('batch/rank', 'batch_per_rank', (row) => cellOf(row).rank_batch),
    numberColumn('runs', 'runs', (row) => cellOf(row).runs, whole),
    rateColumn(study.rate_unit, (row) => cellOf(row).rate),
    numberColumn('step ms', 'step_seconds', (row) => cellOf(row).step_seconds, inMs),
    numberColumn('speedup', 'speedup', figure('speedup')),
    intervalColumn('speedup', figure('speedup_interval'), digits),
    numberColumn('efficiency', 'efficiency', figure('efficiency'), percent),
    intervalColumn('efficiency', figure('efficiency_interval'), percent),
    numberColumn('comm wait', 'comm_wait_share', (row) => cellOf(row).comm_wait_share, percent),
    numberColumn('data wait', 'data_wait_share', (row) => cellOf(row).data_wait_share, percent),
    numberColumn('peak memory', 'peak_bytes', (row) => cellOf(row).peak_bytes || null, bytes),
    {...numberColumn('MFU', 'mfu', (row) => cellOf(row).mfu, percent), hidden: study.cells.every((cell) => cell.mfu === null)},
    {...numberColumn('memory bandwidth', 'memory_share', (row) => cellOf(row).memory_share, percent), hidden: study.cells.every((cell) => cell.memory_share === null)},
    {...numberColumn('peak TFLOPS', 'peak_tflops', (row) => cellOf(row).peak_tflops || null), hidden: true},
    {...textColumn('base case', 'base', base), hidden: bases.size < 2},
    {...textColumn('remarks', 'remarks', remarks), hidden: true},
  ], study.rows);
  const remarked = study.rows.filter(remarks).map((row) => `${cellOf(row).label}${row.scaling === '-' ? '' : `, ${row.scaling}`}: ${remarks(row)}`);
  const peaks = [...new Set(study.cells.filter((cell) => cell.mfu !== null).map(
      (cell) => `${cell.peak_is_measured ? 'measured' : 'stated'} ${Number(cell.peak_tflops.toPrecision(3))}`))];
  if (peaks.length > 0) {
    remarked.unshift(`MFU: 3 x the model's forward operations, of the ${peaks.join(' or ')} TFLOPS of every device.`);
  }
  remarked.unshift('Comm wait and data wait: shares of all ranks\' time spent waiting in communication, including for late ranks, and for data.');
  if (bases.size === 1) remarked.unshift(`The base case is ${[...bases][0]}.`);
  part.append(element('ul', {class: 'remarks'}, ...[...new Set(remarked)].map((text) => element('li', {}, ...prose(text)))));
}

function lawTable(part) {
  const rows = study.series.flatMap((series) => [
    ...(series.law === null ? [] : [{
      series, name: 'Amdahl', ranks: 'all', value: series.law.serial_fraction, interval: series.law.interval, error: series.law.error,
    }]),
    ...series.serial_fractions.map((one) => ({series, name: 'Karp-Flatt', error: null, ...one})),
  ]);
  table(part, 'law-table', 'Serial fractions', [
    textColumn('trainer', 'trainer', (row) => row.series.trainer),
    textColumn('scaling', 'scaling', (row) => row.series.scaling),
    textColumn('law', 'law', (row) => row.name),
    textColumn('ranks', 'ranks', (row) => String(row.ranks)),
    numberColumn('serial fraction', 'serial_fraction', (row) => row.value),
    intervalColumn('serial_fraction', (row) => row.interval, digits),
    numberColumn('median error', 'median_relative_error', (row) => row.error, percent),
  ], rows);
  const trends = study.series.filter((series) => series.serial_trend).map(
      (series) => `The serial fraction of ${series.trainer} by Karp and Flatt ${series.serial_trend}.`);
  part.append(element('ul', {class: 'remarks'}, ...trends.map((text) => element('li', {}, ...prose(text)))));
  const without = study.series.filter((series) => series.no_law).map((series) => `${series.trainer}: ${series.no_law}`);
  if (without.length > 0) part.append(folded(`Amdahl's law was not fitted to ${without.length} series`, without));
}

function ledgerTable(part) {
  const rows = study.ledgers.flatMap((ledger) => [
    {...ledger, rank: 'critical', parts: ledger.critical},
    ...ledger.ranks.map((rank) => ({cell: ledger.cell, rank: placeName(rank), parts: rank.parts,
                                    imbalance_seconds: null, noise_seconds: null, residual_share: null, captured_seconds: null})),
  ]);
  table(part, 'ledger-table', 'Ledger, ms per step', [
    textColumn('configuration', 'configuration', (row) => cellOf(row).label),
    textColumn('rank', 'rank', (row) => row.rank),
    numberColumn('step', 'step_seconds', (row) => total(row.parts), inMs),
    ...ledgerParts.map((one) => ({...numberColumn(one.name, `${one.key}_seconds`, (row) => row.parts[one.key], inMs),
                                  hidden: rows.every((row) => !row.parts[one.key])})),
    numberColumn('imbalance', 'imbalance_seconds', (row) => row.imbalance_seconds, inMs),
    numberColumn('of it noise', 'noise_seconds', (row) => row.noise_seconds, inMs),
    numberColumn('median |residual|', 'median_residual_share', (row) => row.residual_share, percent),
    {...numberColumn('captured', 'captured_seconds', (row) => row.captured_seconds, inMs),
     hidden: rows.every((row) => !row.captured_seconds)},
  ], rows);
}

function communicationTable(part) {
  const rows = study.ledgers.flatMap(({cell, communication}) => communication.map((along) => ({cell, ...along})));
  if (rows.length === 0) return;
  table(part, 'communication-table', 'Communication of a rank in a step, by axis of the mesh: means over the ranks', [
    textColumn('configuration', 'configuration', (row) => cellOf(row).label),
    textColumn('axis', 'axis', (row) => row.axis),
    numberColumn('calls', 'calls', (row) => row.calls),
    numberColumn('size', 'bytes', (row) => row.bytes, bytes),
    numberColumn('comm wait ms', 'comm_wait_seconds', (row) => row.wait_seconds, inMs),
  ], rows);
}

function waterfallTable(part) {
  const rows = study.waterfalls.flatMap((waterfall) => waterfall.losses.map((loss) => ({...loss, waterfall})));
  table(part, 'waterfall-table', 'Losses of efficiency', [
    textColumn('configuration', 'configuration', (row) => cellOf(row.waterfall).label),
    textColumn('scaling', 'scaling', (row) => row.waterfall.scaling),
    numberColumn('ideal ms', 'ideal_seconds', (row) => row.waterfall.ideal_seconds, inMs),
    numberColumn('measured ms', 'measured_seconds', (row) => row.waterfall.measured_seconds, inMs),
    textColumn('cause', 'cause', (row) => row.cause),
    numberColumn('ms', 'seconds', (row) => row.seconds, inMs),
    intervalColumn('seconds', (row) => row.interval, inMs),
    numberColumn('of the ideal speed', 'efficiency_points', (row) => row.points, percent),
  ], rows);
}

function ablationTable(part) {
  table(part, 'ablation-table', 'The ledger against runs without communication, ms per step', [
    textColumn('configuration', 'configuration', (row) => cellOf(row).label + (row.captured ? ', captured: compute holds communication' : '')),
    numberColumn('step got shorter by', 'saved_seconds', (row) => row.saved_seconds, inMs),
    numberColumn('exposed communication', 'exposed_seconds', (row) => row.exposed_seconds, inMs),
    numberColumn('bubble', 'bubble_seconds', (row) => row.bubble_seconds, inMs),
    numberColumn('compute slowed by', 'slowed_seconds', (row) => row.slowed_seconds, inMs),
    numberColumn('disagreement', 'disagreement', (row) => row.disagreement, signedPercent),
    numberColumn('of exposed communication alone', 'exposed_disagreement', (row) => row.exposed_disagreement, signedPercent),
  ], study.ablations);
}

function pipelineTable(part) {
  const figure = (key) => (cell) => cell.pipeline[key];
  table(part, 'pipeline-table', 'Pipelines', [
    textColumn('configuration', 'configuration', (cell) => cell.label),
    numberColumn('stages', 'stages', figure('stages'), whole),
    numberColumn('replicas', 'replicas', figure('replicas'), whole),
    numberColumn('micro-batches', 'micro_batches', figure('micro_batches'), whole),
    numberColumn('wall bubble', 'wall_bubble', figure('wall_bubble'), percent),
    numberColumn('predicted', 'predicted_wall_bubble', figure('predicted_wall_bubble'), percent),
    numberColumn('span bubble', 'span_bubble', figure('span_bubble'), percent),
    numberColumn('predicted', 'predicted_span_bubble', figure('predicted_span_bubble'), percent),
    numberColumn('schedule ms', 'schedule_seconds', figure('seconds'), inMs),
    numberColumn('predicted', 'predicted_seconds', figure('predicted_seconds'), inMs),
    numberColumn('error', 'error', figure('error'), signedPercent),
  ], study.cells.filter((cell) => cell.pipeline !== null));
}

function costTable(part) {
  const rows = study.networks.flatMap((network) => network.curves.map((curve) => ({network: network.name, ...curve})));
  const sizes = (row) => row.points.map((point) => point.bytes);
  table(part, 'cost-table', 'Costs of communication: α + β · bytes', [
    textColumn('network', 'network', (row) => row.network),
    textColumn('collective', 'collective', (row) => row.collective),
    numberColumn('ranks', 'ranks', (row) => row.ranks, whole),
    numberColumn('from', 'min_bytes', (row) => (row.points.length > 0 ? Math.min(...sizes(row)) : null), bytes),
    numberColumn('to', 'max_bytes', (row) => (row.points.length > 0 ? Math.max(...sizes(row)) : null), bytes),
    numberColumn('α µs', 'alpha_seconds', (row) => row.alpha_seconds, inUs),
    intervalColumn('alpha_seconds', (row) => row.alpha_interval, inUs),
    numberColumn('β ns/B', 'beta_seconds_per_byte', (row) => row.beta_seconds_per_byte, inNs),
    intervalColumn('beta_seconds_per_byte', (row) => row.beta_interval, inNs),
    numberColumn('off the line', 'median_relative_error', (row) => row.error, percent),
    numberColumn('between sizes', 'interpolation_error', (row) => row.interpolation_error, percent),
  ], rows);
}

// Rows that the fits pass over, of another layer or timing, are here alone.
function callTable(part) {
  if (study.calls.length === 0) return;
  const details = element('details', {}, element('summary', {}, `${plural(study.calls.length, 'row')} of the communication benchmark`));
  part.append(details);
  const told = (key, silent) => ({...textColumn(key, key, (row) => row[key]),
                                  hidden: study.calls.every((row) => row[key] === silent)});
  const rate = (row, factor) => (row.bytes > 0 && row.seconds > 0 && factor !== null ? factor * row.bytes / row.seconds : null);
  table(details, 'call-table', 'Calls that were measured', [
    textColumn('collective', 'collective', (row) => row.collective),
    textColumn('layer', 'layer', (row) => row.layer),
    textColumn('backend', 'backend', (row) => row.backend),
    numberColumn('ranks', 'ranks', (row) => row.ranks, whole),
    told('hosts', '1'),
    numberColumn('size', 'bytes', (row) => row.bytes, bytes),
    textColumn('dtype', 'dtype', (row) => row.dtype),
    told('group', ''),
    told('in place', 'no'),
    told('in flight', '1'),
    told('cache', 'hot'),
    told('sync', 'barrier'),
    textColumn('timing', 'timing', (row) => row.timing),
    told('graph', 'no'),
    told('registered', 'no'),
    told('algorithm', ''),
    told('protocol', ''),
    numberColumn('launches', 'launches', (row) => row.launches, whole),
    numberColumn('median µs', 'seconds', (row) => row.seconds, inUs),
    numberColumn('algbw', 'algbw_bytes_per_second', (row) => rate(row, 1), bandwidth),
    numberColumn('busbw', 'busbw_bytes_per_second', (row) => rate(row, row.bus_factor), bandwidth),
  ], study.calls);
}

function predictionTable(part) {
  const held = study.scores.flatMap((score) => score.points);
  const rows = [...held, ...study.predictions.map(
      (prediction) => ({prediction, measured_seconds: null, error: null, covered: null}))];
  const figure = (key) => (row) => row.prediction[key];
  table(part, 'prediction-table', 'Predictions', [
    textColumn('layout', 'layout', figure('name')),
    numberColumn('ranks', 'ranks', figure('ranks'), whole),
    numberColumn('step ms', 'predicted_seconds', figure('step_seconds'), inMs),
    {...intervalColumn('predicted_seconds', figure('step_interval'), inMs), head: 'interval'},
    rateColumn(rows.length === 0 ? study.rate_unit : rows[0].prediction.rate_unit, figure('rate')),
    numberColumn('exposed comm ms', 'exposed_comm_seconds', figure('exposed_comm_seconds'), inMs),
    numberColumn('bubble ms', 'bubble_seconds', figure('bubble_seconds'), inMs),
    numberColumn('peak memory', 'peak_bytes', (row) => row.prediction.peak_bytes || null, bytes),
    numberColumn('measured ms', 'measured_seconds', (row) => row.measured_seconds, inMs),
    numberColumn('error', 'error', (row) => row.error, signedPercent),
    textColumn('in the interval', 'covered', (row) => (row.covered === null ? null : row.covered ? 'yes' : 'no')),
    textColumn('assumptions', 'assumptions', (row) => [...row.prediction.extrapolations, ...row.prediction.assumptions].join('; '), 'long'),
  ], rows);
}

function addTables() {
  const part = section('tables', 'Tables', 'Each downloads as CSV, unrounded, in seconds, bytes and shares of 1.');
  scalingTable(part);
  lawTable(part);
  ledgerTable(part);
  communicationTable(part);
  waterfallTable(part);
  ablationTable(part);
  if (study.ablations.length === 0) {
    missing(part, 'No configuration was also run without communication. To add such runs:',
            './bazelw run //:study -- --ablations=3');
  }
  pipelineTable(part);
  costTable(part);
  callTable(part);
  predictionTable(part);
}
