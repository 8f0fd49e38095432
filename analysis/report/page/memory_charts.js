// Memory of each configuration's fullest rank, by kind.

const memoryParts = [
  {key: 'parameters', name: 'parameters', hue: 'blue', pattern: ''},
  {key: 'gradients', name: 'gradients', hue: 'vermillion', pattern: '/'},
  {key: 'optimizer', name: 'optimizer state', hue: 'green', pattern: '.'},
  {key: 'unsharded', name: 'unsharded buffers', hue: 'pink', pattern: '\\'},
  {key: 'activations', name: 'activations', hue: 'orange', pattern: 'x'},
];

function memorySum({measured}) {
  return memoryParts.reduce((sum, {key}) => sum + measured[key], 0);
}

function memoryFigure(look, width, cells) {
  const rows = cells.map((cell, row) => row);
  const data = memoryParts.filter(({key}) => cells.some((cell) => cell.memory.measured[key] > 0)).map((part) => ({
    type: 'bar', orientation: 'h', name: part.name, y: rows, x: cells.map((cell) => 1e-6 * cell.memory.measured[part.key]),
    marker: fill(look, part.hue, part.pattern),
    hovertext: cells.map(({label, memory}) => hoverText(
        label, `${part.name}: ${megabytes(memory.measured[part.key])}`, `rank ${memory.rank}: ${megabytes(memorySum(memory))}`,
        `computed: ${megabytes(memory.computed_bytes)}`)),
    hoverinfo: 'text',
  }));
  data.push({
    type: 'scatter', mode: 'markers', name: 'computed, sum of all kinds', y: rows,
    x: cells.map((cell) => 1e-6 * cell.memory.computed_bytes),
    marker: {symbol: 'line-ns', size: 22, line: {color: look.ink, width: 3}},
    hovertext: cells.map(({label, memory}) => hoverText(label, `computed: ${megabytes(memory.computed_bytes)}`)),
    hoverinfo: 'text',
  });
  return {
    data,
    layout: layout(look, rowsHeight(width, cells.length), {
      barmode: 'stack',
      bargap: 0.25,
      legend: {orientation: 'h', x: 0, xanchor: 'left', y: 1, yanchor: 'bottom', traceorder: 'normal', font: {size: 12}},
      xaxis: axis(look, 'MB on the fullest rank', {rangemode: 'tozero'}),
      yaxis: rowAxis(look, cells.map((cell) => cell.label), width),
    }),
  };
}

function addMemory() {
  const part = section(
      'memory', 'Memory of a rank',
      'Memory of the fullest rank by kind, measured while it trained; the line is the sum of all kinds by the formulas.');
  const cells = study.cells.filter((cell) => cell.memory !== null);
  if (cells.length === 0) {
    missing(part, 'No run measured its memory. A study that does:', './bazelw run //:study');
    return;
  }
  chart(part, 'memory-bars', 'Memory of the fullest rank of each configuration, by kind',
        (look, width) => memoryFigure(look, width, cells));
}
