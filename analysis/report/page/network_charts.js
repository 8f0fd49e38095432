// Bandwidth of collectives against the size of the buffer: medians and fitted lines.

const fittedPoints = 48;  // segments per line, evenly spaced in the logarithm of the size

// Returns a curve's fitted line over the measured sizes: {bytes: [...], seconds: [...]}; null for fewer than two sizes.
function fittedLine(curve) {
  const sizes = curve.points.map((point) => point.bytes).filter((size) => size > 0);
  if (sizes.length < 2) return null;
  const least = Math.min(...sizes), most = Math.max(...sizes);
  const places = Array.from({length: fittedPoints + 1}, (_, i) => least * (most / least) ** (i / fittedPoints));
  return {bytes: places, seconds: places.map((size) => curve.alpha_seconds + curve.beta_seconds_per_byte * size)};
}

function lineText(curve) {
  const per = curve.beta_seconds_per_byte > 0 ? bandwidth(1 / curve.beta_seconds_per_byte) : 'no limit';
  return `α ${digits(curve.alpha_seconds * 1e6)} µs, 1/β ${per}`;
}

function curveName(curve) {
  return `${curve.collective === '*' ? 'any collective' : curve.collective}, ${curve.ranks} ranks`;
}

function pointTrace(look, curve, mark, factor, shared) {
  const points = curve.points.filter((point) => point.bytes > 0);
  const rate = (point, seconds) => (seconds === null ? null : factor * point.bytes / seconds);
  const values = points.map((point) => rate(point, point.seconds));
  return {
    type: 'scatter', mode: 'markers', name: plain(curveName(curve)), x: points.map((point) => point.bytes), y: values,
    marker: {color: mark.color, symbol: mark.symbol, size: 8},
    error_y: errorBars(
        values, points.map((point) => rate(point, endOf(point.interval, 1))),
        points.map((point) => rate(point, endOf(point.interval, 0))), mark.color),
    text: points.map((point, i) => hoverText(
        `${curveName(curve)}, ${bytes(point.bytes)}`, `${bandwidth(values[i])}`,
        `${digits(point.seconds * 1e6)} µs ${interval(point.interval, (s) => digits(s * 1e6))}`)),
    hoverinfo: 'text', ...shared,
  };
}

function curveTraces(look, curve, n, what, first, visible) {
  const mark = style(look, n);
  const factor = what.factor(curve);
  const shared = {xaxis: what.axis, yaxis: what.axis.replace('x', 'y'), legendgroup: curveName(curve), visible};
  const traces = [pointTrace(look, curve, mark, factor, {...shared, showlegend: first})];
  const line = fittedLine(curve);
  if (line === null) return traces;
  const words = hoverText(`${curveName(curve)}: fitted`, lineText(curve));
  traces.push({
    type: 'scatter', mode: 'lines', x: line.bytes, y: line.bytes.map((size, at) => factor * size / line.seconds[at]),
    line: {color: mark.color, dash: mark.dash, width: 2},
    text: line.bytes.map(() => words), hoverinfo: 'text', showlegend: false, ...shared,
  });
  return traces;
}

// Returns ticks at powers of 2, at most `steps` + 1.
function sizeTicks(sizes, steps) {
  const first = Math.ceil(Math.log2(Math.min(...sizes))), last = Math.floor(Math.log2(Math.max(...sizes)));
  const step = Math.max(2, Math.ceil((last - first) / steps));
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push(2 ** power);
  return {tickvals: ticks, ticktext: ticks.map(bytes)};
}

const decades = Array.from({length: 15}, (_, power) => 10 ** power);

const bandwidths = [
  {axis: 'x', factor: () => 1},
  {axis: 'x2', factor: (curve) => curve.bus_factor},
];

function networkFigure(look, width, network) {
  const {curves} = network;
  const all = curves.length <= 4 || !curves.some((curve) => curve.collective === 'all_reduce');
  // Older records lack the factor of the bus bandwidth.
  const data = bandwidths.flatMap((what, half) => curves.flatMap((curve, n) => what.factor(curve) === null ? [] : curveTraces(
      look, curve, n, what, half === 0, all || curve.collective === 'all_reduce' ? true : 'legendonly')));
  const sizes = curves.flatMap((curve) => curve.points.map((point) => point.bytes)).filter((size) => size > 0);
  const size = {type: 'log', ...sizeTicks(sizes, width < 800 ? 3 : 5)};
  const rate = {type: 'log', tickvals: decades, ticktext: decades.map(bandwidth)};
  const half = halves(width, 130);
  return {
    data,
    layout: layout(look, half.height, {
      xaxis: axis(look, 'size of the buffer', {...size, ...half.x}),
      yaxis: axis(look, 'algbw', {...rate, ...half.y}),
      xaxis2: axis(look, 'size of the buffer', {...size, ...half.x2}),
      yaxis2: axis(look, 'busbw', {...rate, ...half.y2}),
    }),
  };
}

function addNetworks() {
  const part = section(
      'network', 'What communication costs',
      'Bandwidth by the size of the buffer: algbw is size over time, busbw is algbw times the collective\'s factor, comparable with the bandwidth of a link. ' +
          'Medians with 95 % intervals, from which costs are predicted, and a fitted line α + β · size for each curve. ' +
          'A click on a name in the legend shows or hides its curve.');
  study.networks.forEach((network, i) => {
    if (!network.curves.some((curve) => curve.points.some((point) => point.bytes > 0))) return;
    part.append(element('h3', {}, network.name));
    chart(part, `network-${i}`, `Bandwidth against size, ${network.name}`, (look, width) => networkFigure(look, width, network));
  });
  if (!part.querySelector('.plot')) {
    missing(part, 'The study has no records of the communication benchmark. A study that measures it:',
            './bazelw run //:study -- --comm_bench');
  }
}
