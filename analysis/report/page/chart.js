// Every picture of the page: drawn, drawn again when light turns dark, the window
// changes its size or the page is printed, and counted.

const charts = [];
const printedWidth = 690;  // pixels: A4 within its margins

const plotConfig = {
  displaylogo: false,
  // Nothing leaves the page.
  showSendToCloud: false,
  plotlyServerURL: '',
  topojsonURL: '/',
  modeBarButtonsToRemove: ['lasso2d', 'select2d'],
  toImageButtonOptions: {format: 'svg'},
};

// Adds a picture of what `figure(look, width)` gives: {data, layout}, `width` in
// pixels. The function that comes back draws it again, as another picture: what
// was zoomed into or hidden is forgotten.
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

// What was drawn of a chart: lines, bars and points.
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
