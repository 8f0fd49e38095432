// Timelines of a pipeline's step, as measured and as simulated.

const actions = [
  {key: 'F', name: 'F: forward', hue: 'sky', pattern: ''},
  {key: 'B', name: 'B: backward', hue: 'orange', pattern: '/'},
  {key: 'I', name: 'I: backward of inputs', hue: 'pink', pattern: '\\'},
  {key: 'W', name: 'W: backward of weights', hue: 'green', pattern: '.'},
];

// Returns the rows: one per rank, or one per stage if a single process runs all stages.
function timelineRows(spans) {
  const ranks = [...new Set(spans.map((span) => span.rank))].sort((a, b) => a - b);
  const stages = [...new Set(spans.map((span) => span.stage))].sort((a, b) => a - b);
  if (ranks.length === 1 && stages.length > 1) return {key: 'stage', values: stages, stagesOf: () => stages};
  const stagesOf = (rank) =>
      [...new Set(spans.filter((span) => span.rank === rank).map((span) => span.stage))].sort((a, b) => a - b);
  return {key: 'rank', values: ranks, stagesOf};
}

// "F3", or "F3′" for the rank's second stage.
function spanLabel(span, rows) {
  const place = rows.key === 'rank' ? rows.stagesOf(span.rank).indexOf(span.stage) : 0;
  return `${span.action}${span.micro_batch}${'′'.repeat(place)}`;
}

function timelineTraces(look, spans, rows, origin, axes) {
  return actions.map((action) => {
    const own = spans.filter((span) => span.action === action.key);
    return {
      type: 'bar', orientation: 'h', name: action.name, legendgroup: action.key,
      y: own.map((span) => rows.values.indexOf(span[rows.key])),
      base: own.map((span) => span.start * 1e3),
      x: own.map((span) => (span.end - span.start) * 1e3),
      width: 0.8, marker: fill(look, action.hue, action.pattern),
      text: own.map((span) => `<b>${plain(spanLabel(span, rows))}</b>`), textposition: 'inside', insidetextanchor: 'middle',
      textangle: 0, insidetextfont: {color: '#14171c', size: 12},
      hovertext: own.map((span) => hoverText(
          `${spanLabel(span, rows)} on ${rows.key} ${span[rows.key]}, ${origin}`, action.name,
          `stage ${span.stage}, micro-batch ${span.micro_batch}`,
          `${milliseconds(span.end - span.start)}, from ${milliseconds(span.start)}`)),
      hoverinfo: 'text', ...axes,
    };
  }).filter((trace) => trace.x.length > 0);
}

function timelineFigure(look, width, picture) {
  const parts = [['measured', picture.measured], ['simulated', picture.simulated]].filter(([, spans]) => spans.length > 0);
  const rowsOf = parts.map(([, spans]) => timelineRows(spans));
  const gap = parts.length > 1 ? 0.14 : 0;
  const data = [], axes = {}, titles = [], named = new Set();
  parts.forEach(([origin, spans], i) => {
    const suffix = i === 0 ? '' : String(i + 1);
    const domain = parts.length === 1 ? [0, 1] : i === 0 ? [0.5 + gap / 2, 1] : [0, 0.5 - gap / 2];
    for (const trace of timelineTraces(look, spans, rowsOf[i], origin, {xaxis: 'x', yaxis: `y${suffix}`})) {
      data.push({...trace, showlegend: !named.has(trace.legendgroup)});
      named.add(trace.legendgroup);
    }
    const {key, values} = rowsOf[i];
    axes[`yaxis${suffix}`] = rowAxis(look, values.map((value) => `${key} ${value}`), width, {domain, fixedrange: true});
    const end = Math.max(...spans.map((span) => span.end));
    titles.push({
      xref: 'paper', x: 0, xanchor: 'left', yref: 'paper', y: domain[1], yanchor: 'bottom', showarrow: false,
      text: `<b>${origin}</b>, ${milliseconds(end)}`, font: {color: look.ink, size: 13},
    });
  });
  const rows = rowsOf.reduce((sum, one) => sum + one.values.length, 0);
  return {
    data,
    layout: layout(look, 150 + 48 * rows, {
      barmode: 'overlay', annotations: titles, ...axes,
      uniformtext: {minsize: 9, mode: 'hide'},
      margin: {l: 64, r: 20, t: 64, b: 50},
      legend: {orientation: 'h', x: 1, xanchor: 'right', y: 1 + 22 / (36 + 48 * rows), yanchor: 'bottom'},
      xaxis: axis(look, 'ms since the step\'s first action', {
        rangemode: 'tozero', anchor: parts.length > 1 ? 'y2' : 'y', zeroline: false,
      }),
    }),
  };
}

function addTimelines() {
  const part = section(
      'timelines', 'Pipelines over time',
      'One step of the first replica, by rank: F3 is the forward pass of micro-batch 3, F3′ that of the rank\'s second ' +
          'stage. The simulation uses the measured costs of actions and links; gaps are the bubble.');
  if (study.timelines.length === 0) {
    missing(part, 'No pipeline\'s timeline was recorded. A study that records timelines:',
            './bazelw run //:study -- --trainers=single,pipeline');
    return;
  }
  let shown = 0;
  let draw = () => {};
  const names = study.timelines.map(({cell, step}) => `${study.cells[cell].label}, step ${step}`);
  if (names.length > 1) {
    select(controls(part), 'Pipeline', names, shown, (place) => {
    shown = place;
    draw();
  });
  } else {
    part.append(element('h3', {}, names[0]));
  }
  draw = chart(
      part, 'timeline-bars', 'When each rank\'s actions ran',
      (look, width) => timelineFigure(look, width, study.timelines[shown]));
}
