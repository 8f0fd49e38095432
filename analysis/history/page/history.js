// The page from top to bottom: the changes, a chart of one series, all values.

const past = JSON.parse(document.getElementById('report-data').textContent);

// A value with its unit.
function shown(series, value) {
  if (series.unit === 's') return milliseconds(value);
  return series.unit === 'B' ? megabytes(value) : `${digits(value, 4)}\u00a0/s`;
}

function pointName({day, commit}) {
  return past.by_day ? day : `${commit}, ${day}`;
}

// The levels between changes: {begin, end, value}, with indices of points.
function levels(series) {
  const starts = [0, ...series.changes.map((change) => change.at)];
  return starts.map((begin, i) => ({
    begin,
    end: starts[i + 1] ?? series.points.length,
    value: series.changes.length === 0 ? null : i === 0 ? series.changes[0].before : series.changes[i - 1].after,
  }));
}

function historyFigure(look, width, series) {
  const scale = series.unit === 's' ? 1e3 : series.unit === 'B' ? 1e-6 : 1;
  const unit = {'s': 'ms', 'B': 'MB', '/s': '/s'}[series.unit];
  const values = series.points.map((point) => scale * point.value);
  const end = (at) => series.points.map((point) => scaled(endOf(point.interval, at), scale));
  const places = series.points.map((point) => point.point);
  const measured = {
    type: 'scatter', mode: 'markers', name: 'measured', x: places, y: values,
    marker: {color: look.blue, size: 8},
    error_y: errorBars(values, end(0), end(1), look.blue),
    text: series.points.map((point) => hoverText(
        pointName(past.points[point.point]), `${shown(series, point.value)} ` +
        interval(point.interval, (value) => shown(series, value)), plural(point.repetitions, 'repetition'))),
    hoverinfo: 'text',
  };
  const level = levels(series).filter(({value}) => value !== null).map(({begin, end, value}, n) => ({
    type: 'scatter', mode: 'lines', name: 'level', legendgroup: 'level', showlegend: n === 0,
    x: [places[begin] - 0.4, places[end - 1] + 0.4], y: [scale * value, scale * value],
    line: {color: look.vermillion, width: 3}, hoverinfo: 'skip',
  }));
  const stride = Math.max(1, Math.ceil(past.points.length / (width < 800 ? 6 : 12)));
  const ticks = past.points.map((point, i) => i).filter((i) => i % stride === 0);
  return {
    data: [...level, measured],
    layout: layout(look, chartHeight(width), {
      xaxis: axis(look, past.by_day ? 'day (UTC)' : 'day of the commit\'s first run (UTC)', {
        tickvals: ticks, ticktext: ticks.map((i) => past.points[i].day), range: [-0.6, past.points.length - 0.4]}),
      yaxis: axis(look, `${series.metric}, ${unit}`),
      shapes: series.changes.map((change) => ({
        type: 'line', yref: 'paper', y0: 0, y1: 1, x0: places[change.at] - 0.5, x1: places[change.at] - 0.5,
        line: {color: look.muted, dash: 'dot', width: 1.5}})),
    }),
  };
}

function addChanges() {
  const part = section('changes', 'Changes', past.test);
  if (past.changes.rows.length > 0) {
    addTable(part, past.changes);
  } else {
    part.append(element('p', {}, 'No change was found.'));
  }
}

function addSeries() {
  const part = section(
      'series', 'Over time',
      `A point is the geometric mean over the repetitions of a ${past.by_day ? 'day' : 'commit'}, with its 95 % interval.`);
  // Series with the most changes come first.
  const order = [...past.series].sort((a, b) => b.changes.length - a.changes.length);
  let chosen = 0;
  let draw = () => {};
  const names = order.map((series) => `${series.name}, ${series.metric}` +
      (series.changes.length > 0 ? ` (${plural(series.changes.length, 'change')})` : ''));
  select(controls(part), 'series', names, 0, (place) => {
    chosen = place;
    draw();
  });
  draw = chart(part, 'history', 'One series over time', (look, width) => historyFigure(look, width, order[chosen]));
}

function addValues() {
  const part = section('values', 'All values', '');
  addTable(part, past.values);
  if (past.remarks.length > 0) {
    part.append(element('h3', {}, 'Notes'),
                element('ul', {}, ...past.remarks.map((remark) => element('li', {}, remark))));
  }
}

async function showHistory() {
  const runs = past.points.reduce((sum, point) => sum + point.runs, 0);
  document.getElementById('subtitle').textContent =
      `${plural(past.points.length, past.by_day ? 'day' : 'commit')} · ${plural(runs, 'run')} · ${past.series.length} series`;
  addChanges();
  addSeries();
  addValues();
  await showCharts();
}

showHistory().then(() => report(true), (error) => {
  pageErrors.push(String(error));
  report(false);
});
