// Amounts and times in words.

export function cpu(milli: number): string {
  if (milli === 0) return "0";
  return milli % 1000 === 0 || milli >= 10000 ? `${trim(milli / 1000)}` : milli < 1000 ? `${milli}m` : `${trim(milli / 1000)}`;
}

const UNITS: [string, number][] = [
  ["Ti", 2 ** 40],
  ["Gi", 2 ** 30],
  ["Mi", 2 ** 20],
  ["Ki", 2 ** 10],
];

export function bytes(amount: number): string {
  for (const [suffix, size] of UNITS) if (amount >= size) return `${trim(amount / size)} ${suffix}`;
  return `${amount}`;
}

export function amount(resource: string, value: number): string {
  if (resource === "cpu") return cpu(value);
  return resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-") ? bytes(value) : value.toLocaleString("en");
}

function trim(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: value >= 100 ? 0 : 1 });
}

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function ago(time: number | null, now = Date.now() / 1000): string {
  return time === null ? "" : now - time < 2 ? "now" : `${duration(now - time)} ago`;
}

export function clock(time: number): string {
  return new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function hour(time: number): string {
  return new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

export function moment(time: number): string {
  return new Date(time * 1000).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
}

export function counted(number: number, noun: string, plural = `${noun}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

export function full(place: { namespace: string; name: string }): string {
  return place.namespace ? `${place.namespace}/${place.name}` : place.name;
}
