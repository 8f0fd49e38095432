// Colours, dashes, markers and patterns. Traces that differ in colour differ in one of the others too. Colours after Okabe
// and Ito, "Color Universal Design" (2008), lightened for dark pages.

const lightLook = {
  name: 'light',
  ink: '#1b1f24',
  muted: '#57606a',
  grid: '#e3e7eb',
  paper: '#ffffff',
  neutral: '#8b949e',
  blue: '#0072b2',
  vermillion: '#d55e00',
  green: '#009e73',
  pink: '#b8578f',
  orange: '#e69f00',
  sky: '#56b4e9',
};

const darkLook = {
  name: 'dark',
  ink: '#e6e9ed',
  muted: '#9aa4af',
  grid: '#2b313a',
  paper: '#14171c',
  neutral: '#7d8590',
  blue: '#4c9fd8',
  vermillion: '#f07f33',
  green: '#2bbd92',
  pink: '#dd8ebd',
  orange: '#f0b429',
  sky: '#8ed0f5',
};

const darkPage = matchMedia('(prefers-color-scheme: dark)');
let printing = false;

function currentLook() {
  return darkPage.matches && !printing ? darkLook : lightLook;
}

const hues = ['blue', 'vermillion', 'green', 'pink', 'orange', 'sky', 'neutral'];
const dashes = ['solid', 'dash', 'dashdot', 'longdash', 'dot', 'longdashdot'];
const symbols = ['circle', 'square', 'diamond', 'triangle-up', 'star', 'triangle-down', 'pentagon', 'cross'];

// Returns the style of the n-th trace; the first 42 differ in colour or dash.
function style(look, n) {
  return {
    color: look[hues[n % hues.length]],
    dash: dashes[n % dashes.length],
    symbol: symbols[n % symbols.length],
  };
}

function transparent(color, alpha) {
  const channel = (at) => parseInt(color.slice(at, at + 2), 16);
  return `rgba(${channel(1)},${channel(3)},${channel(5)},${alpha})`;
}

// Returns a bar's fill: a colour with a pattern over it.
function fill(look, hue, shape) {
  return {
    color: look[hue],
    line: {color: look.paper, width: 1},
    pattern: {shape, fillmode: 'overlay', fgcolor: transparent(look.paper, 0.55), size: 7, solidity: 0.3},
  };
}

function layout(look, height, more) {
  return {
    height,
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: {family: 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif', size: 13, color: look.ink},
    margin: {l: 64, r: 20, t: 12, b: 50},
    hoverlabel: {
      align: 'left',
      bgcolor: look.paper,
      bordercolor: look.neutral,
      font: {color: look.ink, size: 13},
    },
    modebar: {bgcolor: 'rgba(0,0,0,0)', color: look.muted, activecolor: look.blue},
    legend: {orientation: 'h', x: 0, xanchor: 'left', y: 1.03, yanchor: 'bottom'},
    ...more,
  };
}

function axis(look, title, more) {
  return {
    title: {text: title, standoff: 10, font: {size: 13, color: look.muted}},
    gridcolor: look.grid,
    zerolinecolor: look.grid,
    linecolor: look.neutral,
    tickcolor: look.neutral,
    tickfont: {color: look.ink},
    automargin: true,
    ...more,
  };
}

// An axis of values in percent.
function percentAxis(look, title, more) {
  return axis(look, title, {ticksuffix: '\u00a0%', ...more});
}

// Breaks long names into two lines; on narrow pages, shorter ones too.
function wrapped(name, width) {
  const middle = name.lastIndexOf(' ', Math.ceil(name.length / 2) + 4);
  if (name.length < (width < 800 ? 20 : 40) || middle < 0) return plain(name);
  return `${plain(name.slice(0, middle))}<br>${plain(name.slice(middle + 1))}`;
}

// An axis with a row per name, from top to bottom, at 0, 1, ...
function rowAxis(look, names, width, more) {
  return axis(look, '', {
    tickvals: names.map((name, row) => row),
    ticktext: names.map((name) => wrapped(name, width)),
    range: [names.length - 0.5, -0.5],
    showgrid: false,
    zeroline: false,
    ...more,
  });
}

// Height in pixels; narrow charts, such as printed ones, are lower.
function chartHeight(width) {
  return width < 800 ? 350 : 430;
}

// Height in pixels of a chart of `rows` rows, whose names take two lines each on narrow pages.
function rowsHeight(width, rows) {
  return width < 800 ? 150 + 40 * rows : 105 + 34 * rows;
}

// Places two charts of one figure side by side, or on narrow pages the first above the second. Returns the height and
// the properties to add to the axes x, y, x2 and y2. `labels`: width in pixels of the right axis's labels.
function halves(width, labels) {
  if (width < 640) {
    return {height: 780, x: {}, y: {domain: [0.6, 1]}, x2: {anchor: 'y2'}, y2: {domain: [0, 0.4], anchor: 'x2'}};
  }
  const gap = labels / (width - 84);
  return {
    height: chartHeight(width),
    x: {domain: [0, 0.5 - gap / 2]},
    y: {},
    x2: {domain: [0.5 + gap / 2, 1], anchor: 'y2'},
    y2: {anchor: 'x2'},
  };
}

// The area between two curves over the same `places`, except where an end is null.
function band(places, lowEnds, highEnds, color, more) {
  const known = places.map((x, i) => i).filter((i) => lowEnds[i] !== null && highEnds[i] !== null);
  const [xs, lows, highs] = [places, lowEnds, highEnds].map((values) => known.map((i) => values[i]));
  return {
    type: 'scatter',
    mode: 'lines',
    x: [...xs, ...[...xs].reverse()],
    y: [...highs, ...[...lows].reverse()],
    fill: 'toself',
    fillcolor: transparent(color, 0.14),
    line: {width: 0, color},
    hoverinfo: 'skip',
    showlegend: false,
    ...more,
  };
}

// Plotly's error bars: the distances from the values to the ends of their intervals; 0 where an end is null.
function errorBars(values, lows, highs, color, more) {
  return {
    type: 'data',
    symmetric: false,
    array: values.map((value, i) => (highs[i] ?? value) - value),
    arrayminus: values.map((value, i) => value - (lows[i] ?? value)),
    color,
    thickness: 1.5,
    width: 4,
    ...more,
  };
}
