// A photo from the camera. Browsers allow it only on pages from HTTPS or localhost; elsewhere, phones still offer their
// own camera where a file is chosen.
import { find } from "./dom.js";

const [video, note] = ["video", "note"].map(find);
const REASONS = {
  NotAllowedError: "The browser has not allowed the camera.",
  NotFoundError: "No camera was found.",
  NotReadableError: "Another program is using the camera.",
};
let stream = null;
let run = 0; // A camera that is allowed after it was closed, or opened again, is switched off.

// Calls `take` with a file.
export function onPhoto(take) {
  find("camera").addEventListener("click", open);
  find("cancel").addEventListener("click", closeCamera);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !video.hidden) closeCamera();
  });
  find("shoot").addEventListener("click", async () => {
    const still = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    still.getContext("2d").drawImage(video, 0, 0);
    closeCamera();
    take([new File([await still.convertToBlob({ type: "image/jpeg", quality: 0.95 })], "photo.jpg")]);
  });
}

async function open() {
  closeCamera();
  const mine = run;
  note.textContent = "";
  if (!navigator.mediaDevices) {
    if (matchMedia("(pointer: coarse)").matches) find("capture").click();
    else note.textContent = "The camera needs this page to be loaded over HTTPS or from localhost.";
    return;
  }
  try {
    const found = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    if (mine !== run) return switchOff(found);
    stream = video.srcObject = found;
    await video.play();
    if (mine !== run) return;
    show(true);
    find("shoot").focus();
  } catch (error) {
    if (mine !== run) return;
    closeCamera();
    note.textContent = REASONS[error.name] ?? `The camera cannot be used: ${error.message}.`;
  }
}

export function closeCamera() {
  run += 1;
  if (stream) switchOff(stream);
  stream = video.srcObject = null;
  const focused = find("shutter").contains(document.activeElement);
  show(false);
  // A hidden button loses the focus.
  if (focused) find("camera").focus();
}

const switchOff = (found) => found.getTracks().forEach((track) => track.stop());

function show(live) {
  video.hidden = find("shutter").hidden = !live;
  find("tools").hidden = find("keys").hidden = live;
}
