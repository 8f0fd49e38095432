// Compares each layer with the machine's limits of compute and memory (Williams, Waterman and Patterson 2009, "Roofline").

const directions = [
  {key: 'forward', hue: 'blue', symbol: 'circle'},
  {key: 'backward', hue: 'vermillion', symbol: 'diamond'},
];

function knowsLimits(profile) {
  return profile.peak_flops_per_second > 0 && profile.peak_bytes_per_second > 0;
}

function sumOf(passes, key) {
  return passes.reduce((sum, pass) => sum + pass[key], 0);
}

// Boxes are [left, top, right, bottom] in pixels.
function overlap(a, b) {
  return a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
}

function labelBoxes({x, y, size}, text) {
  const wide = 7.5 * text.length, high = 16, away = size / 2 + 2;
  return [
    ['middle right', [x + away, y - high / 2, x + away + wide, y + high / 2]],
    ['middle left', [x - away - wide, y - high / 2, x - away, y + high / 2]],
    ['top center', [x - wide / 2, y - away - high, x + wide / 2, y - away]],
    ['bottom center', [x - wide / 2, y + away, x + wide / 2, y + away + high]],
  ];
}

// Returns a label {text, position} for each of the points {x, y, size, name, direction}, the most important first, that
// lies in `area` without covering another label or point. Points of one direction that touch share a label; a label
// without room is empty.
function labelled(points, area) {
  const taken = points.map(({x, y, size}) => [x - size / 2, y - size / 2, x + size / 2, y + size / 2]);
  const named = new Set();
  const none = {text: '', position: 'top center'};
  return points.map((point, i) => {
    if (named.has(i)) return none;
    const group = points.map((other, k) => k).filter((k) => {
      const {x, y, size, direction} = points[k];
      return !named.has(k) && direction === point.direction && 2 * Math.hypot(x - point.x, y - point.y) <= size + point.size;
    });
    group.forEach((k) => named.add(k));
    const text = group.length > 1 ? `${point.name} +${group.length - 1}` : point.name;
    const within = ([left, top, right, bottom]) => left >= 0 && top >= 0 && right <= area.width && bottom <= area.height;
    const spot = labelBoxes(point, text).find(
        ([, box]) => within(box) && taken.every((other, k) => group.includes(k) || !overlap(box, other)));
    if (spot === undefined) return none;
    taken.push(spot[1]);
    return {text, position: spot[0]};
  });
}

// Log10 of the ends of an axis that exceeds `values` by the factors `below` and `above`.
function logRange(values, below, above) {
  return [Math.log10(Math.min(...values) / below), Math.log10(Math.max(...values) * above)];
}

// The memory limit from the left end of the chart to the ridge point, and the compute limit from there to the right end.
function limitTraces(look, profile, [left, right]) {
  const {peak_flops_per_second: flops, peak_bytes_per_second: memory} = profile;
  const ridge = flops / memory;
  const line = (name, x, dash) => ({
    type: 'scatter', mode: 'lines', name, x, y: x.map((intensity) => Math.min(flops, memory * intensity)),
    line: {color: look.ink, width: 2, dash}, hoverinfo: 'skip',
  });
  return [
    line(`memory: ${bandwidth(memory)}`, [10 ** left, ridge], 'dash'),
    line(`compute: ${flopRate(flops)}`, [ridge, 10 ** right], 'solid'),
  ];
}

function passText(pass) {
  const limit = pass.limit === null ? [] : [`limit by ${pass.bound}: ${milliseconds(pass.limit)}, ${pass.limit > pass.seconds ? 'more than' : percent(pass.limit / pass.seconds) + ' of'} the time`];
  return hoverText(`${pass.layer}, ${pass.direction}`, milliseconds(pass.seconds), flopRate(pass.flopRate), bandwidth(pass.byteRate),
                   `${digits(pass.intensity)} FLOP per byte`, ...limit);
}

// Returns the passes with operations, the longest first: others cannot be on a logarithmic axis.
function drawnPasses(passes) {
  return passes.filter((pass) => pass.flopRate !== null && pass.intensity !== null).sort((a, b) => b.seconds - a.seconds);
}

function rooflineFigure(look, width, profile) {
  const passes = drawnPasses(profile.passes);
  const known = knowsLimits(profile);
  const ridge = known ? [profile.peak_flops_per_second / profile.peak_bytes_per_second] : [];
  const room = width < 800 ? 10 : 2.5;  // factor, for the labels on the right
  const xRange = logRange([...passes.map((pass) => pass.intensity), ...ridge], 2, room);
  const yRange = logRange([...passes.map((pass) => pass.flopRate), ...(known ? [profile.peak_flops_per_second] : [])], 2.5, 2);
  const height = chartHeight(width) + 60;
  const area = {width: width - 120, height: height - 110};  // about the area within the axes
  const points = passes.map((pass) => ({
    name: pass.layer, direction: pass.direction, size: 8 + 18 * Math.sqrt(pass.seconds / passes[0].seconds),
    x: area.width * (Math.log10(pass.intensity) - xRange[0]) / (xRange[1] - xRange[0]),
    y: area.height * (yRange[1] - Math.log10(pass.flopRate)) / (yRange[1] - yRange[0]),
  }));
  const labels = labelled(points, area);
  const traces = directions.map(({key, hue, symbol}) => {
    const own = passes.map((pass, i) => i).filter((i) => passes[i].direction === key);
    return {
      type: 'scatter', mode: 'markers+text', name: key,
      x: own.map((i) => passes[i].intensity), y: own.map((i) => passes[i].flopRate),
      marker: {color: transparent(look[hue], 0.75), symbol, size: own.map((i) => points[i].size), line: {color: look.paper, width: 1}},
      text: own.map((i) => plain(labels[i].text)), textposition: own.map((i) => labels[i].position),
      textfont: {color: look.ink, size: 12}, cliponaxis: false,
      hovertext: own.map((i) => passText(passes[i])), hoverinfo: 'text',
    };
  });
  const tenths = Array.from({length: 12}, (_, i) => 10 ** (i - 4));
  return {
    data: [...(known ? limitTraces(look, profile, xRange) : []), ...traces],
    layout: layout(look, height, {
      xaxis: axis(look, 'FLOP per byte', {type: 'log', range: xRange, tickvals: tenths, ticktext: tenths.map(String)}),
      yaxis: axis(look, 'achieved speed', {type: 'log', range: yRange, tickvals: decades, ticktext: decades.map(flopRate)}),
      legend: {orientation: 'h', x: 0, xanchor: 'left', y: 1.03, yanchor: 'bottom', itemsizing: 'constant'},
    }),
  };
}

function rooflineWords(profile) {
  const passes = profile.passes;
  const seconds = sumOf(passes, 'seconds');
  const all = `One pass of ${plural(profile.examples, 'example')} through all layers, forward and backward, takes ${milliseconds(seconds)}`;
  if (!knowsLimits(profile)) return `${all}. The limits of this device are unknown: the run had --peak=none.`;
  const furthest = passes.reduce((a, b) => (b.seconds - b.limit > a.seconds - a.limit ? b : a));
  return `${all}; at its limits it would take ${milliseconds(sumOf(passes, 'limit'))}, ${percent(sumOf(passes, 'limit') / seconds)} of that. ` +
      `Most is lost in ${furthest.layer}, ${furthest.direction}: ${milliseconds(furthest.seconds)} instead of ${milliseconds(furthest.limit)}.`;
}

function addRoofline() {
  const part = section(
      'roofline', 'Layers compared with the machine\'s limits',
      'A point per layer and direction, larger for a longer time. The line above it is the machine\'s limit at the same number of ' +
          'operations per byte. Layers without operations are only in the table. Each layer was timed separately, after training.');
  const profiles = study.profiles.filter((profile) => drawnPasses(profile.passes).length > 0);
  if (profiles.length === 0) {
    missing(part, 'No run timed its layers. A study whose base case does:', './bazelw run //:study');
    return;
  }
  let shown = 0;
  let draw = () => {};
  const words = element('p');
  const tell = () => words.replaceChildren(...prose(rooflineWords(profiles[shown])));
  if (profiles.length > 1) {
    select(controls(part), 'Configuration', profiles.map((profile) => cellOf(profile).label), shown, (place) => {
      shown = place;
      tell();
      draw();
    });
  }
  draw = chart(part, 'roofline-points', 'Operations per second of each layer against its operations per byte',
               (look, width) => rooflineFigure(look, width, profiles[shown]));
  part.append(words);
  tell();
  addTables(part, study.tables, 'layer-');
}
