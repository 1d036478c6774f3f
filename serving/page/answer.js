// Shows a prediction: the class, all probabilities, the input of the net, and the mean gates of its layers.
const find = (id) => document.getElementById(id);
const SHOWN = 10; // Bars; with at most so many classes, each has a fixed row.
const FEW = 24; // Up to so many layers there is room for wide gaps,
const MANY = 120; // and beyond so many there is none.
const TOPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]; // Ends of the axis of the gates.

// Number of classes to request.
export const wanted = (classes) => Math.min(classes.length, SHOWN);

// Shows the empty state, before there is an image.
export function showNothing(model, invitation) {
  find("answer").className = "card empty";
  const [label, share] = find("verdict").children;
  label.textContent = invitation;
  share.textContent = "";
  rows(model ? model.classes.slice(0, SHOWN) : []);
  find("seen").getContext("2d").clearRect(0, 0, find("seen").width, find("seen").height);
  find("gates").replaceChildren();
  find("last").textContent = "last layer";
  for (const id of ["seen", "gates"]) find(id).setAttribute("aria-label", "Nothing yet");
  find("route").hidden = !model?.gates;
  find("source").textContent = "";
}

export function show(answer, model, milliseconds) {
  const [{ top, seen, gates }] = answer.predictions;
  find("answer").className = "card";
  const [label, share] = find("verdict").children;
  label.textContent = label.title = top[0].label;
  share.textContent = percent(top[0].probability);
  const fixed = model.classes.length <= SHOWN;
  const byLabel = new Map(top.map((one) => [one.label, one.probability]));
  const shown = fixed ? model.classes : top.map((one) => one.label);
  rows(shown).forEach((row, place) => fill(row, byLabel.get(shown[place]) ?? 0, shown[place] === top[0].label));
  pixels(find("seen"), seen);
  find("route").hidden = !gates;
  if (gates) route(gates, answer.layers);
  find("source").textContent = `${answer.model}, version ${answer.version}, answered in ${Math.round(milliseconds)} ms`;
}

// Marks the prediction as outdated.
export const showOld = () => find("answer").classList.add("old");

const percent = (share) => `${(100 * share).toFixed(1)}%`;

// One row per label; existing rows are reused, so that their bars move.
function rows(labels) {
  const bars = find("bars");
  while (bars.children.length > labels.length) bars.lastChild.remove();
  while (bars.children.length < labels.length) {
    const row = document.createElement("li");
    row.innerHTML = '<span class="name"></span><span class="track"><i class="bar"></i></span><span class="share"></span>';
    bars.append(row);
  }
  const longest = Math.max(1, ...labels.map((label) => label.length));
  bars.style.setProperty("--name", `min(${0.6 * longest + 0.4}em, 38%)`);
  return labels.map((label, place) => {
    const row = bars.children[place];
    row.firstChild.textContent = row.firstChild.title = label;
    fill(row, 0, false, "");
    return row;
  });
}

function fill(row, share, first, text = percent(share)) {
  row.className = first ? "first" : "";
  row.querySelector(".bar").style.width = `${100 * share}%`;
  row.lastChild.textContent = text;
}

function pixels(canvas, seen) {
  [canvas.height, canvas.width] = [seen.length, seen[0].length];
  const image = new ImageData(canvas.width, canvas.height);
  seen.flat().forEach((channels, place) => {
    const [red, green = red, blue = red] = channels;
    image.data.set([red, green, blue, 255], 4 * place);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", `${canvas.width} by ${canvas.height} pixels`);
}

function route(gates, names) {
  const most = Math.max(...gates);
  const top = TOPS.find((one) => one >= most) ?? 1;
  const strip = find("gates");
  strip.className = gates.length <= FEW ? "few" : gates.length > MANY ? "many" : "";
  const widest = names[gates.indexOf(most)];
  strip.setAttribute("aria-label", `Mean gates of ${gates.length} layers; ${widest} is the most open with ${most.toPrecision(2)}`);
  find("most").textContent = top;
  find("last").textContent = `layer ${gates.length}`;
  strip.replaceChildren(...gates.map((gate, place) => {
    const mark = document.createElement("i");
    mark.style.height = `${(100 * gate) / top}%`;
    mark.title = `${names[place]}: ${gate.toPrecision(2)}`;
    return mark;
  }));
}
