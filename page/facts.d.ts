// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The facts of a page, as docs/view.md describes them. For the check of types only.

export interface Bytes { bytes: number; at: number | null }

export interface Curve { least: ArrayLike<number>; most: ArrayLike<number>; last: ArrayLike<number> }

export interface Overview {
  buckets: number; entry: number[]; ms: number[] | null; reserved: Curve; allocated: Curve; requested: Curve;
}

export interface Mark {
  at: number | null; kind: "oom" | "flush" | "empty_cache" | "snapshot"; bytes: number; is_certain: boolean;
}

export interface Band { from: number; to: number; name: string; kind: "annotation" | "step" }

export interface Step {
  step: number; first_entry: number; entries: number; is_whole?: boolean; peak_allocated: number; peak_reserved?: number;
}

export interface Setting {
  name: string; line: string | null; is_recorded: boolean; is_pytorch: boolean; reserved_peak: number | null; fits: boolean;
  part: string;
}

export interface PartNames {
  blocks: string[]; segments?: string; others?: string; stacks?: string; times?: string; curves?: string;
}

export interface DeviceFacts {
  device: number; entries: number; is_from_start: boolean; is_cut: boolean; has_steps: boolean; has_segments: boolean; unit: number;
  lanes: number; has_times: boolean; first_ns: string | null; span_ns: number | null;
  peaks: {reserved: Bytes | null; allocated: Bytes; requested: Bytes; active: Bytes; live: Bytes};
  limit: {least: number; most: number} | null; streams: string[]; pools: string[]; marks: Mark[]; bands: Band[];
  /** Rows of the report, whose keys are those of report --json. */
  steps: Step[] | {rows: Step[]}; ooms: any[]; leaks: any[]; report: any;
  whatif: Setting[]; overview: Overview; parts: PartNames; left_out: {blocks: number; below_entries: number} | null;
}

export interface FileFacts {
  name: string; described: number; report: {finding: string[]; advice: {text: string; line: string | null}[]};
  devices: DeviceFacts[];
}

export interface Facts { version: number; tool: string; files: FileFacts[] }
