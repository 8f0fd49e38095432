// Draws the page's charts, and draws them again when the colour scheme or the window's size changes and for printing.
// Reports how much was drawn, for tests.

const charts = [];
const printedWidth = 690;  // pixels: A4 within its margins

const plotConfig = {
  displaylogo: false,
  // Send nothing to a server.
  showSendToCloud: false,
  plotlyServerURL: '',
  topojsonURL: '/',
  modeBarButtonsToRemove: ['lasso2d', 'select2d'],
  toImageButtonOptions: {format: 'svg'},
};

// Adds a chart of `figure(look, width)`, which returns {data, layout} for a `width` in pixels. Returns a function that
// draws the chart again with the figure's current data and resets zoom and hidden traces.
function chart(parent, id, description, figure) {
  const place = element('div', {class: 'plot', id, role: 'img', 'aria-label': description});
  parent.append(place);
  let revision = 1;
  const draw = () => {
    const width = printing ? printedWidth : place.clientWidth;
    const {data, layout} = figure(currentLook(), width);
    return Plotly.react(place, data, {...layout, width, uirevision: revision}, plotConfig);
  };
  charts.push({id, place, draw});
  return () => {
    ++revision;
    return draw();
  };
}

async function drawAll() {
  for (const one of charts) await one.draw();
}

// Returns the number of lines, bars and points that a chart shows.
function marks(place) {
  return place.querySelectorAll('.plot .trace path').length;
}

function report(done) {
  const drawn = {};
  for (const {id, place} of charts) drawn[id] = marks(place);
  document.getElementById('report-status').textContent =
      JSON.stringify({done, look: currentLook().name, marks: drawn, errors: pageErrors});
}

function printWith(value) {
  printing = value;
  for (const one of charts) one.draw();
}

async function showCharts() {
  await drawAll();
  darkPage.addEventListener('change', async () => {
    await drawAll();
    report(true);
  });
  let waiting = 0;
  addEventListener('resize', () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => !printing && drawAll(), 150);
  });
  addEventListener('beforeprint', () => printWith(true));
  addEventListener('afterprint', () => printWith(false));
}
