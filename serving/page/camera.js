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

// Calls `take` with a file.
export function onPhoto(take) {
  find("camera").addEventListener("click", open);
  find("cancel").addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !video.hidden) close();
  });
  find("shoot").addEventListener("click", async () => {
    const still = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    still.getContext("2d").drawImage(video, 0, 0);
    close();
    take([new File([await still.convertToBlob({ type: "image/jpeg", quality: 0.95 })], "photo.jpg")]);
  });
}

async function open() {
  note.textContent = "";
  if (!navigator.mediaDevices) {
    if (matchMedia("(pointer: coarse)").matches) find("capture").click();
    else note.textContent = "The camera needs this page to be loaded over HTTPS or from localhost.";
    return;
  }
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    video.srcObject = stream;
    await video.play();
    show(true);
    find("shoot").focus();
  } catch (error) {
    close();
    note.textContent = REASONS[error.name] ?? `The camera cannot be used: ${error.message}.`;
  }
}

function close() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = video.srcObject = null;
  const shown = !video.hidden;
  show(false);
  if (shown) find("camera").focus();
}

function show(live) {
  video.hidden = find("shutter").hidden = !live;
  find("tools").hidden = find("keys").hidden = live;
}
