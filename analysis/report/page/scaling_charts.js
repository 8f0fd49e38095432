// Speedup and efficiency against ranks.

// Returns the points of a series: its rows, and the base if no row has the base's number of ranks.
function scalingPoints(series) {
  const points = series.points.filter((point) => point.efficiency !== null).map((point) => {
    const {speedup, speedup_interval, efficiency, efficiency_interval, warning} = point.efficiency;
    const cell = study.cells[point.cell];
    return {
      name: cell.label, ranks: cell.ranks, rate: cell.rate, marks: warning ? [...cell.marks, warning] : cell.marks,
      speedup, speedups: speedup_interval, efficiency, efficiencies: efficiency_interval,
    };
  });
  if (!points.some((point) => point.ranks === series.base_ranks)) {
    points.unshift({
      name: 'the base case', ranks: series.base_ranks, rate: null, marks: [],
      speedup: 1, speedups: [1, 1], efficiency: 1, efficiencies: [1, 1],
    });
  }
  return points.sort((a, b) => a.ranks - b.ranks);
}

function scalingHover(series, point) {
  const lines = [
    `speedup ${digits(point.speedup)} ${interval(point.speedups, digits)}`,
    `efficiency ${percent(point.efficiency)} ${interval(point.efficiencies, percent)}`,
  ];
  if (point.rate !== null) lines.push(`${digits(point.rate, 4)} ${study.rate_unit}`);
  return hoverText(`${series.trainer}: ${point.name}`, ...lines, ...point.marks);
}

function lawHover(series) {
  const {law} = series;
  return hoverText(`${series.trainer}: Amdahl`, `serial fraction ${digits(law.serial_fraction)} ${interval(law.interval, digits)}`,
                   `median error ${percent(law.error)}`);
}

// `what` is one of scalingHalves.
function scalingTraces(look, series, place, what, first) {
  const mark = style(look, trainers.indexOf(series.trainer));
  const points = scalingPoints(series);
  const xs = points.map((point) => place(point.ranks));
  const values = points.map((point) => what.scale * point[what.value]);
  const end = (at) => points.map((point) => scaled(endOf(point[what.range], at), what.scale));
  const [lows, highs] = [end(0), end(1)];
  const shared = {xaxis: what.axis, yaxis: what.axis.replace('x', 'y'), legendgroup: series.trainer};
  return [
    band(xs, lows, highs, mark.color, shared),
    {
      type: 'scatter', mode: 'lines+markers', name: plain(series.trainer), x: xs, y: values,
      line: {color: mark.color, dash: mark.dash, width: 2},
      marker: {color: mark.color, symbol: mark.symbol, size: 9},
      error_y: errorBars(values, lows, highs, mark.color),
      text: points.map((point) => scalingHover(series, point)),
      hoverinfo: 'text', showlegend: first, ...shared,
    },
  ];
}

function lawTraces(look, series, what, first) {
  const {law} = series;
  if (law === null) return [];
  const {color} = style(look, trainers.indexOf(series.trainer));
  return [{
    type: 'scatter', mode: 'lines', x: law.ranks, y: law.speedups.map((s, at) => what.ofLaw(s, law.ranks[at] / series.base_ranks)),
    name: plain(`${series.trainer}: Amdahl`), line: {color, dash: 'dot', width: 1.5},
    text: law.ranks.map(() => lawHover(series)), hoverinfo: 'text', showlegend: first, legendgroup: `${series.trainer}: Amdahl`,
    xaxis: what.axis, yaxis: what.axis.replace('x', 'y'),
  }];
}

function idealTrace(look, base, furthest, what, first) {
  const ranks = [base, furthest];
  return {
    type: 'scatter', mode: 'lines', name: 'ideal', x: ranks, y: ranks.map((n) => what.ofLaw(n / base, n / base)),
    line: {color: look.neutral, dash: 'dash', width: 1.5}, hoverinfo: 'skip', showlegend: first,
    legendgroup: 'ideal', xaxis: what.axis, yaxis: what.axis.replace('x', 'y'),
  };
}

const scalingHalves = [
  {value: 'speedup', range: 'speedups', scale: 1, axis: 'x', ofLaw: (speedup) => speedup},
  {value: 'efficiency', range: 'efficiencies', scale: 100, axis: 'x2', ofLaw: (speedup, ratio) => 100 * speedup / ratio},
];

function powersOf2(largest) {
  return Array.from({length: Math.ceil(Math.log2(largest)) + 1}, (_, i) => 2 ** i);
}

function scalingFigure(look, width, all, withLaws) {
  const sizes = [...new Set(all.flatMap((series) => scalingPoints(series).map((point) => point.ranks)))];
  const largest = Math.max(...sizes);
  const furthest = withLaws ? 2 * largest : largest;
  const wide = furthest > 12;  // then a logarithmic axis
  const spread = wide ? 0.02 : 0.02 * (furthest - Math.min(...sizes));
  const data = [];
  scalingHalves.forEach((what, half) => {
    for (const base of new Set(all.map((series) => series.base_ranks))) {
      data.push(idealTrace(look, base, furthest, what, half === 0 && base === all[0].base_ranks));
    }
    all.forEach((series, k) => {
      // Shifted, so that intervals at one size do not hide each other.
      const shift = spread * (k - (all.length - 1) / 2);
      const place = (n) => (n === series.base_ranks ? n : wide ? n * (1 + shift) : n + shift);
      data.push(...scalingTraces(look, series, place, what, half === 0));
      if (withLaws) data.push(...lawTraces(look, series, what, half === 0));
    });
  });
  const ticks = withLaws ? [...sizes, furthest] : sizes;
  const ranks = {type: wide ? 'log' : 'linear', tickvals: ticks, ticktext: ticks.map(String)};
  const speedups = {tickvals: [0.25, 0.5, ...powersOf2(furthest)], ticktext: undefined};
  const half = halves(width, 100);
  return {
    data,
    layout: layout(look, half.height, {
      xaxis: axis(look, 'ranks', {...ranks, ...half.x}),
      yaxis: axis(look, 'speedup over the base case', wide ? {...ranks, ...speedups, ...half.y} : {rangemode: 'tozero', ...half.y}),
      xaxis2: axis(look, 'ranks', {...ranks, ...half.x2}),
      yaxis2: percentAxis(look, 'efficiency', {rangemode: 'tozero', ...half.y2}),
    }),
  };
}

const scalingNames = {strong: 'Strong scaling: the same global batch', weak: 'Weak scaling: the same batch per rank'};

function addScaling() {
  const part = section(
      'scaling', 'Speedup and efficiency',
      'Speedup is throughput over that of the base case; efficiency is speedup over the ideal. ' +
          'Bars and bands are 95 % intervals over the repetitions.');
  const kinds = [...new Set(study.series.map((series) => series.scaling))];
  for (const kind of kinds) {
    const all = study.series.filter(
        (series) => series.scaling === kind && series.points.some((point) => point.efficiency !== null));
    if (all.length === 0) continue;
    part.append(element('h3', {}, scalingNames[kind] || 'The same peak memory of the fullest rank'));
    const hasLaw = all.some((series) => series.law !== null);
    let withLaws = hasLaw && all.length <= 3;
    let draw = () => {};
    if (hasLaw) {
      checkbox(controls(part), 'fit of Amdahl\'s law, to twice the largest size', withLaws, (checked) => {
        withLaws = checked;
        draw();
      });
    }
    draw = chart(
        part, `scaling-${kind}`, `Speedup and efficiency against ranks, ${kind} scaling`,
        (look, width) => scalingFigure(look, width, all, withLaws));
  }
  if (!part.querySelector('.plot')) {
    missing(part, 'No world size could be compared with a base case: the notes say why. A study of two sizes:',
            './bazelw run //:study -- --world_sizes=1,2');
  }
}
