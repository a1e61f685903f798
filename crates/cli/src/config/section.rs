//! The macro that declares one section of the configuration.
//!
//! A section is declared once and becomes two types. *Options* has every field optional and is read from the file (field by
//! field, by serde) and from the command line (clap) under the same names, so the two cannot drift apart. *Config* is what the
//! program runs with: options of the command line over options of the file over the defaults, all checked.

/// A field that cannot have the value it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} = {value}: allowed is {allowed}")]
pub struct FieldError {
    /// The field's dotted path, as in `node.capacity`.
    pub path: String,
    /// The value as it was written.
    pub value: String,
    /// The values allowed instead.
    pub allowed: String,
    /// The path of the field that it contradicts, if the value would be allowed alone.
    pub against: Option<&'static str>,
}

impl FieldError {
    /// The error of a value that is never allowed.
    pub fn new(path: impl Into<String>, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self { path: path.into(), value: value.to_string(), allowed: allowed.into(), against: None }
    }

    /// The same error, for a value that is only not allowed beside that of the field `other`.
    pub fn against(self, other: &'static str) -> Self {
        Self { against: Some(other), ..self }
    }

    /// The paths of the field and of the one that it contradicts.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.path).chain(self.against)
    }

    /// Whether the error is about the field at `path`.
    pub fn concerns(&self, path: &str) -> bool {
        self.paths().any(|concerned| concerned == path)
    }
}

/// All errors in a layer's fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    /// Adds an error if `value` is not within its bounds.
    pub(super) fn within<T>(mut self, path: &str, value: &T, low: &str, high: &str) -> Self
    where
        T: Value + std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        if !(literal(low)..=literal(high)).contains(value) {
            self.0.push(FieldError::new(path, value, format!("{}, from {low} to {high}", T::ALLOWED)));
        }
        self
    }

    /// Adds `contradictions` between values that are allowed alone.
    pub(super) fn beside(mut self, mut contradictions: Vec<FieldError>) -> Self {
        contradictions.retain(|fault| !self.0.iter().any(|wrong| fault.concerns(&wrong.path)));
        self.0.extend(contradictions);
        self
    }

    /// Returns the value of `resolved`, or adds its errors.
    pub(super) fn gather<T>(&mut self, resolved: Result<T, Self>) -> Option<T> {
        resolved.map_err(|Self(more)| self.0.extend(more)).ok()
    }
}

/// A field's description, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name in its section and, after the section's flag prefix, on the command line.
    pub key: &'static str,
    /// The value if it is not set.
    pub default: &'static str,
    /// The values allowed.
    pub allowed: String,
    /// The purpose, in one line.
    pub help: &'static str,
}

/// A kind of value that a field can have.
pub trait Value {
    /// The values allowed, in words that continue "allowed is".
    const ALLOWED: &'static str;
    /// The placeholder for a value in the usage of a command.
    const NAME: &'static str;
}

/// Reads a literal of a section's declaration.
pub(super) fn literal<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| unreachable!("{text:?} in a section's declaration; a test reads them all"))
}

/// Declares a section: `"name", flags "prefix" => Config, Options { "key" field: Type = "default" in "low" to "high", "help"; }`.
///
/// On the command line a field's argument has the id `name-key`, so that a command may take several sections. Bounds may be
/// left out. `checked by method`, after the names, has that method of Config say which fields contradict each other.
macro_rules! section {
    (
        $(#[$about:meta])*
        $section:literal, flags $prefix:literal => $config:ident, $options:ident $(, checked by $check:ident)? {
            $($key:literal $field:ident : $type:ty = $default:literal $(in $low:literal to $high:literal)?, $help:literal;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
        pub struct $config {
            $(#[doc = $help] #[serde(rename = $key)] pub $field: $type,)*
        }

        #[doc = concat!("The section `", $section, "` as a file or the command line sets it.")]
        #[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
        pub struct $options {
            $(
                #[doc = $help]
                #[arg(
                    id = concat!($section, "-", $key),
                    long = concat!($prefix, $key),
                    value_name = <$type as $crate::config::Value>::NAME,
                    help = concat!($help, " [default: ", $default, "]")
                )]
                pub $field: Option<$type>,
            )*
        }

        impl $options {
            /// Every field of the section.
            pub fn fields() -> Vec<$crate::config::Field> {
                vec![$($crate::config::Field {
                    key: $key,
                    default: $default,
                    allowed: [<$type as $crate::config::Value>::ALLOWED, $(", from ", $low, " to ", $high)?].concat(),
                    help: $help,
                }),*]
            }

            /// The options set here, and those of `under` otherwise.
            pub fn over(self, under: Self) -> Self {
                Self { $($field: self.$field.or(under.$field)),* }
            }

            /// Sets the field `key`. Returns false if it does not exist or cannot have that value.
            pub fn set(&mut self, key: &str, value: toml::de::ValueDeserializer<'_>) -> bool {
                match key {
                    $($key => serde::Deserialize::deserialize(value).is_ok_and(|value| {
                        self.$field = Some(value);
                        true
                    }),)*
                    _ => false,
                }
            }

            /// The options set here over the defaults, all checked.
            pub fn resolve(self) -> Result<$config, $crate::config::FieldErrors> {
                let config = $config {
                    $($field: self.$field.unwrap_or_else(|| $crate::config::section::literal($default)),)*
                };
                let faults = $crate::config::FieldErrors::default()
                    $($(.within(concat!($section, ".", $key), &config.$field, $low, $high))?)*;
                $(let faults = faults.beside(config.$check());)?
                if faults.0.is_empty() { Ok(config) } else { Err(faults) }
            }
        }
    };
}

pub(crate) use section;
