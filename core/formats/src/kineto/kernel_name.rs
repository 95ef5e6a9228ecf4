//! Names of kernels that people can read.
//!
//! The profiler writes C++ signatures of hundreds of characters, the same ones again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The most characters of a shortened name.
const LONGEST: usize = 60;

/// Parts of signatures that tell nothing.
const NOISE: [&str; 3] = ["(anonymous namespace)::", "at::native::", "at_cuda_detail::"];

/// The shortened names of kernels, each kept once.
#[derive(Debug, Default)]
pub(super) struct KernelNames(BTreeMap<String, Arc<str>>);

impl KernelNames {
    /// The name of a kernel without its arguments and the namespaces of PyTorch.
    pub(super) fn short(&mut self, signature: &str) -> Arc<str> {
        if let Some(known) = self.0.get(signature) {
            return Arc::clone(known);
        }
        let short: Arc<str> = shortened(signature).into();
        self.0.insert(signature.to_owned(), Arc::clone(&short));
        short
    }
}

fn shortened(signature: &str) -> String {
    let mut name = signature.strip_prefix("void ").unwrap_or(signature).to_owned();
    for noise in NOISE {
        name = name.replace(noise, "");
    }
    // `Memcpy DtoH (Device -> Pinned)` is no function.
    if let Some(arguments) =
        arguments(&name).filter(|at| !name.get(..*at).is_some_and(|before| before.ends_with(' ')))
    {
        name.truncate(arguments);
    }
    if name.chars().count() > LONGEST {
        name = name.chars().take(LONGEST - 1).chain(['…']).collect();
    }
    name
}

/// The place of the list of arguments: the first bracket outside of template arguments.
fn arguments(name: &str) -> Option<usize> {
    let mut depth = 0_i32;
    name.char_indices().find_map(|(at, letter)| {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 && at > 0 => return Some(at),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::shortened;

    /// Names as PyTorch 2.2 on an A100 wrote them, in HolisticTraceAnalysis' test data.
    #[test]
    fn a_name_has_no_arguments_and_no_namespaces_of_pytorch() {
        for (signature, short) in [
            (
                "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x4_tn",
                "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x4_tn",
            ),
            ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH (Device -> Pinned)"),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, \
                 at::detail::Array<char*, 1> >(int, at::native::FillFunctor<int>, at::detail::Array<char*, 1>)",
                "vectorized_elementwise_kernel<4, FillFunctor<int>, at::deta…",
            ),
            (
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel(int)",
                "multi_tensor_apply_kernel",
            ),
            ("(strange)", "(strange)"),
            ("", ""),
        ] {
            assert_eq!(shortened(signature), short);
        }
    }
}
